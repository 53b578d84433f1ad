import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { describe, expect, it } from 'vitest'
import { parseAllDocuments } from 'yaml'

import { describeConfig } from '#shared/config/config.ts'
import { type Manifest, renderKustomization } from '#test/support/kustomize.ts'

const FOLDER = join(import.meta.dirname, '../../../deploy/kubernetes')
const OVERLAYS = ['base', 'gpu', 'monitoring']

interface Model {
  validate(): void
}

// Typed models that check an object against the schema of its server: by the API group's end.
const PACKAGES: readonly (readonly [RegExp, string])[] = [
  [/^keda\.sh\//, '@kubernetes-models/keda'],
  [/^monitoring\.coreos\.com\//, '@kubernetes-models/prometheus-operator'],
  [/./, 'kubernetes-models'],
]

async function modelOf({ apiVersion, kind }: Manifest): Promise<new (data: object) => Model> {
  const name = PACKAGES.find(([group]) => group.test(apiVersion))?.[1]
  const models = (await import(`${name}/${apiVersion}`)) as Record<
    string,
    new (
      data: object,
    ) => Model
  >
  const model = models[kind]
  if (model === undefined) throw new Error(`${apiVersion} has no ${kind}`)
  return model
}

describe.each(OVERLAYS)('deploy/kubernetes/%s', (overlay) => {
  const objects = renderKustomization(join(FOLDER, overlay))
  const deployments = objects.filter(({ kind }) => kind === 'Deployment')
  const workers = deployments.filter(({ metadata }) => metadata.name.startsWith('worker-'))

  it.each(objects.map((object) => [`${object.kind} ${object.metadata.name}`, object] as const))(
    'has a valid %s',
    async (_name, object) => {
      const Model = await modelOf(object)
      expect(() => new Model(object).validate()).not.toThrow()
    },
  )

  it('has a group of workers for every model that ships', () => {
    const served = workers.flatMap((worker) => settingOf(worker, 'MILLRACE_WORKER_MODELS'))
    const { models } = JSON.parse(readFileSync(join(FOLDER, '../../models.json'), 'utf8')) as {
      models: { id: string }[]
    }
    expect(served.sort()).toEqual(models.map(({ id }) => id).sort())
  })

  it('has a budget and a scaler for every group of workers', () => {
    for (const { metadata } of workers)
      for (const kind of ['PodDisruptionBudget', 'ScaledObject'])
        expect(objects).toContainEqual(
          expect.objectContaining({
            kind,
            metadata: expect.objectContaining({ name: metadata.name }),
          }),
        )
  })

  it('gives every container bounds, probes and no rights', () => {
    expect(deployments.length).toBeGreaterThan(1)
    for (const deployment of deployments) {
      const { containers } = podOf(deployment)
      expect(containers, deployment.metadata.name).toEqual([
        expect.objectContaining({
          resources: expect.objectContaining({
            limits: expect.objectContaining({ memory: expect.anything() }),
          }),
          livenessProbe: expect.anything(),
          readinessProbe: expect.anything(),
          securityContext: {
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ['ALL'] },
          },
        }),
      ])
    }
  })

  it('selects the pods of its own templates, and probes ports that exist', () => {
    for (const deployment of deployments) {
      const { matchLabels } = (deployment.spec as { selector: { matchLabels: object } }).selector
      const { metadata } = (deployment.spec as { template: { metadata: { labels: object } } })
        .template
      expect(metadata.labels).toMatchObject(matchLabels)
      for (const container of podOf(deployment).containers) {
        const ports = container.ports.map(({ name }) => name)
        for (const probe of [
          container.livenessProbe,
          container.readinessProbe,
          container.startupProbe,
        ])
          expect(ports).toContain(probe.httpGet.port)
      }
    }
  })

  it('names settings that exist', () => {
    for (const deployment of deployments)
      for (const container of podOf(deployment).containers)
        for (const { name, value } of container.env ?? [])
          expect(describeConfig({ [name]: value })).toContain(`${name}=${value}`)
  })

  it('gives a stopping API process longer than its drain takes', () => {
    const drain = describeConfig({}).find((line) => line.startsWith('MILLRACE_DRAIN_TIMEOUT='))
    const api = deployments.find(({ metadata }) => metadata.name === 'api') as Manifest
    const [container] = podOf(api).containers
    // Proxies send it requests for a moment more: SIGTERM comes after that.
    const pause = Number(container?.lifecycle?.preStop.exec.command.at(-1))
    expect(pause).toBeGreaterThanOrEqual(3)
    expect(podOf(api).terminationGracePeriodSeconds).toBeGreaterThan(
      pause + Number(drain?.match(/=(\d+)s?$/)?.[1]),
    )
  })

  it('is what kubectl renders, where kubectl is at hand', ({ skip }) => {
    const kubectl = spawnSync('kubectl', ['kustomize', join(FOLDER, overlay)], { encoding: 'utf8' })
    if (kubectl.error !== undefined) return skip('no kubectl on this machine')
    const theirs = parseAllDocuments(kubectl.stdout).map((document) => document.toJS() as Manifest)
    expect(sorted(objects)).toEqual(sorted(theirs))
  })
})

interface Pod {
  readonly terminationGracePeriodSeconds: number
  readonly containers: readonly Container[]
}

interface Container {
  readonly ports: readonly { readonly name: string }[]
  readonly lifecycle?: { readonly preStop: { readonly exec: { readonly command: string[] } } }
  readonly env?: readonly { readonly name: string; readonly value: string }[]
  readonly livenessProbe: Probe
  readonly readinessProbe: Probe
  readonly startupProbe: Probe
}

interface Probe {
  readonly httpGet: { readonly port: string }
}

function settingOf(deployment: Manifest, setting: string): string[] {
  const [container] = podOf(deployment).containers
  return container?.env?.find(({ name }) => name === setting)?.value.split(',') ?? []
}

function podOf(deployment: Manifest): Pod {
  return (deployment.spec as { template: { spec: Pod } }).template.spec
}

function sorted(objects: readonly Manifest[]): Manifest[] {
  const key = ({ kind, metadata }: Manifest) => `${kind}/${metadata.name}`
  return [...objects].sort((a, b) => key(a).localeCompare(key(b)))
}
