import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

import { parseAllDocuments } from 'yaml'

const ROOT = join(import.meta.dirname, '../..')
const FIXTURES = join(ROOT, 'test/fixtures/helm')
/** The chart of the project. */
export const CHART = join(ROOT, 'deploy/helm')

/** A Kubernetes object as written in a manifest. */
export interface Manifest {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: { readonly name: string; readonly labels: Readonly<Record<string, string>> }
  readonly [field: string]: unknown
}

/** Runs helm with arguments, or returns undefined where it is not installed. */
export function runHelm(...args: string[]): { status: number | null; output: string } | undefined {
  const helm = spawnSync('helm', args, { encoding: 'utf8', maxBuffer: 2 ** 24 })
  if (helm.error !== undefined) return undefined
  return { status: helm.status, output: helm.status === 0 ? helm.stdout : helm.stderr }
}

/**
 * The manifests that helm renders for `test/fixtures/helm/<name>.values.yaml`, or undefined without
 * helm. Random values of Secrets are left out, as are empty lines before documents, which Helm 4
 * writes; files of the chart are named by their length.
 */
export function render(name: string): string | undefined {
  const values = join(FIXTURES, `${name}.values.yaml`)
  const found = runHelm(
    'template',
    'millrace',
    CHART,
    '--namespace',
    'millrace',
    '--kube-version',
    '1.31.0',
    ...(existsSync(values) ? ['--values', values] : []),
  )
  if (found?.status !== 0) return undefined
  return found.output
    .replaceAll(/\n+(?=---\n|$(?![\s\S]))/g, '\n')
    .replaceAll(/^( {2}(?:[A-Z0-9_]+): )[\w+/]{20,}={0,2}$/gm, '$1c2VjcmV0')
    .replaceAll(/^( {2}millrace\.json: ).*$/gm, '$1"{}"')
    .replace(/^(kind: PrometheusRule[\s\S]*?\nspec:)[\s\S]*?(?=\n---|$(?![\s\S]))/m, '$1 {}')
}

/** The objects of a rendering that the repository keeps, so that they are checked without helm. */
export function readRendered(name: string): Manifest[] {
  return parseAllDocuments(readFileSync(join(FIXTURES, `${name}.yaml`), 'utf8')).map(
    (document) => document.toJS() as Manifest,
  )
}
