import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'

import { parse, parseAllDocuments } from 'yaml'

/** A Kubernetes object as written in a manifest. */
export interface Manifest {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: { readonly name: string; readonly namespace?: string }
  readonly [field: string]: unknown
}

interface Kustomization {
  readonly namespace?: string
  readonly resources?: readonly string[]
  readonly labels?: readonly { readonly pairs: Readonly<Record<string, string>> }[]
  readonly images?: readonly { readonly name: string; readonly newName: string }[]
  readonly patches?: readonly {
    readonly target: { readonly kind: string; readonly name: string }
    readonly patch: string
  }[]
}

interface PatchStep {
  readonly op: string
  readonly path: string
  readonly value: unknown
}

const KNOWN = ['apiVersion', 'kind', 'namespace', 'resources', 'labels', 'images', 'patches']

/**
 * The objects that `kubectl kustomize` renders for a folder, by the features that our own folders
 * use: resources, namespace, labels with selectors, images, and JSON patches that add or replace.
 * Anything else in a kustomization is an error, so that nothing is left out unseen.
 */
export function renderKustomization(folder: string): Manifest[] {
  const settings = parse(readFileSync(join(folder, 'kustomization.yaml'), 'utf8')) as Kustomization
  const unknown = Object.keys(settings).filter((key) => !KNOWN.includes(key))
  if (unknown.length > 0) throw new Error(`${folder} uses ${unknown.join(', ')}`)
  const objects = (settings.resources ?? []).flatMap((name) => readResource(join(folder, name)))
  for (const object of objects) {
    if (settings.namespace !== undefined)
      setAt(object, ['metadata', 'namespace'], settings.namespace)
    for (const { pairs } of settings.labels ?? []) addLabels(object, pairs)
    for (const { name, newName } of settings.images ?? []) renameImage(object, name, newName)
  }
  for (const { target, patch } of settings.patches ?? []) {
    const name = new RegExp(`^(?:${target.name})$`)
    const found = objects.filter((o) => o.kind === target.kind && name.test(o.metadata.name))
    if (found.length === 0) throw new Error(`${folder} patches a missing ${target.name}`)
    for (const object of found) applyPatch(object, parse(patch) as PatchStep[])
  }
  return objects
}

function applyPatch(object: Manifest, steps: readonly PatchStep[]): void {
  for (const { op, path, value } of steps) {
    if (op !== 'add' && op !== 'replace') throw new Error(`a patch asks for ${op}`)
    setAt(object, pointer(path), value)
  }
}

function readResource(path: string): Manifest[] {
  if (statSync(path).isDirectory()) return renderKustomization(path)
  return parseAllDocuments(readFileSync(path, 'utf8')).map(
    (document) => document.toJS() as Manifest,
  )
}

function pointer(path: string): string[] {
  return path
    .split('/')
    .slice(1)
    .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'))
}

function setAt(object: unknown, path: readonly string[], value: unknown): void {
  let place = object as Record<string, unknown>
  for (const key of path.slice(0, -1)) {
    if (place[key] === undefined) place[key] = {}
    place = place[key] as Record<string, unknown>
  }
  place[path.at(-1) ?? ''] = value
}

/** Labels go on the object, on the selectors and on the pods that these select. */
function addLabels(object: Manifest, pairs: Readonly<Record<string, string>>): void {
  const places = [['metadata', 'labels']]
  if (object.kind === 'Service') places.push(['spec', 'selector'])
  if (object.kind === 'Deployment')
    places.push(['spec', 'selector', 'matchLabels'], ['spec', 'template', 'metadata', 'labels'])
  if (object.kind === 'Job') places.push(['spec', 'template', 'metadata', 'labels'])
  if (object.kind === 'PodDisruptionBudget') places.push(['spec', 'selector', 'matchLabels'])
  if (object.kind === 'NetworkPolicy') places.push(['spec', 'podSelector', 'matchLabels'])
  for (const place of places)
    for (const [key, value] of Object.entries(pairs)) setAt(object, [...place, key], value)
}

function renameImage(object: unknown, name: string, newName: string): void {
  if (Array.isArray(object)) for (const item of object) renameImage(item, name, newName)
  else if (typeof object === 'object' && object !== null) {
    const fields = object as Record<string, unknown>
    if (fields.image === name) fields.image = newName
    else for (const value of Object.values(fields)) renameImage(value, name, newName)
  }
}
