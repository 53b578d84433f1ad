import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { describe, expect, it } from 'vitest'

import { describeConfig } from '#shared/config/config.ts'
import { CHART, type Manifest, readRendered, render, runHelm } from '#test/support/helm.ts'

const RENDERINGS = ['whole', 'own']

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

describe.each(RENDERINGS)('deploy/helm with the values %s', (name) => {
  const objects = readRendered(name)
  const workloads = objects.filter(({ kind }) => ['Deployment', 'Job'].includes(kind))
  const deployments = objects.filter(({ kind }) => kind === 'Deployment')

  // Write it again with `helm` at hand and `vitest -u`.
  it('equals the output of helm, if helm is installed', async ({ skip }) => {
    const rendered = render(name)
    if (rendered === undefined) return skip('no helm on this machine')
    await expect(rendered).toMatchFileSnapshot(`../../fixtures/helm/${name}.yaml`)
  })

  it.each(objects.map((object) => [`${object.kind} ${object.metadata.name}`, object] as const))(
    'has a valid %s',
    async (_name, object) => {
      const Model = await modelOf(object)
      const isCut = object.kind === 'PrometheusRule' // its rules are in alerts.yml
      if (!isCut) expect(() => new Model(object).validate()).not.toThrow()
      expect(object.metadata.labels).toMatchObject({ 'app.kubernetes.io/part-of': 'millrace' })
    },
  )

  it('gives every container limits and no privileges, and probes to those that serve', () => {
    expect(deployments.length).toBeGreaterThan(1)
    for (const workload of workloads) {
      const [container, ...others] = podOf(workload).containers
      expect(others).toEqual([])
      expect(container).toMatchObject({
        resources: { limits: { memory: expect.anything() } },
        securityContext: {
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ['ALL'] },
        },
      })
      if (workload.kind === 'Job') continue
      const ports = container?.ports.map((port) => port.name)
      for (const probe of ['livenessProbe', 'readinessProbe', 'startupProbe'] as const)
        expect(ports).toContain(container?.[probe].httpGet.port)
    }
  })

  it('selects the pods of its own templates', () => {
    for (const deployment of deployments) {
      const { matchLabels } = (deployment.spec as { selector: { matchLabels: object } }).selector
      expect(templateOf(deployment).metadata.labels).toMatchObject(matchLabels)
    }
  })

  it('names settings that exist', () => {
    for (const workload of workloads)
      for (const container of podOf(workload).containers)
        for (const { name: setting, value } of container.env ?? [])
          if (/^(MILLRACE|AUTH|OTEL)_/.test(setting))
            expect(describeConfig({ [setting]: value })).toContain(`${setting}=${value}`)
  })

  it('gives a stopping API process longer than its drain', () => {
    const drain = describeConfig({}).find((line) => line.startsWith('MILLRACE_DRAIN_TIMEOUT='))
    const [api] = deployments.filter(({ metadata }) => metadata.name === 'millrace-api')
    const pod = podOf(api as Manifest)
    // Proxies send it requests for a moment more: SIGTERM comes after that.
    const pause = Number(pod.containers[0]?.lifecycle?.preStop.exec.command.at(-1))
    expect(pause).toBeGreaterThanOrEqual(3)
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(
      pause + Number(drain?.match(/=(\d+)s?$/)?.[1]),
    )
  })

  it('has a budget for every Deployment, and a policy with ingress and egress for every tier', () => {
    const named = (kind: string) =>
      objects.filter((object) => object.kind === kind).map(({ metadata }) => metadata.name)
    expect(named('PodDisruptionBudget').sort()).toEqual(named('Deployment').sort())
    for (const { kind, spec } of objects)
      if (kind === 'NetworkPolicy')
        expect(spec).toMatchObject({
          policyTypes: ['Ingress', 'Egress'],
          egress: expect.anything(),
        })
  })
})

describe('deploy/helm', () => {
  const whole = readRendered('whole')
  const own = readRendered('own')

  it('has a group of workers, with a scaler, for every model that ships', () => {
    const { models } = JSON.parse(readFileSync(join(CHART, '../../models.json'), 'utf8')) as {
      models: { id: string; kind: string }[]
    }
    const workers = whole.filter(
      ({ kind, metadata }) =>
        kind === 'Deployment' && metadata.labels['app.kubernetes.io/name'] === 'worker',
    )
    const served = workers.flatMap((worker) => settingOf(worker, 'MILLRACE_WORKER_MODELS'))
    expect(served.sort()).toEqual(models.map(({ id }) => id).sort())
    const scaled = whole.filter(({ kind }) => kind === 'ScaledObject')
    const queues = scaled.flatMap(({ spec }) =>
      (spec as { triggers: { metadata: { url: string } }[] }).triggers.map(({ metadata }) =>
        metadata.url.split('/').at(-1),
      ),
    )
    expect(queues.sort()).toEqual(models.map(({ id, kind }) => `${kind}.${id}`).sort())
  })

  it('scrapes both tiers on their port of metrics, under the job of the tier', () => {
    const monitors = whole.filter(({ kind }) => kind === 'ServiceMonitor')
    const jobs = monitors.map(({ spec }) => {
      const { selector, jobLabel, endpoints } = spec as Monitor
      const [service, ...others] = whole.filter(
        ({ kind, metadata }) =>
          kind === 'Service' &&
          Object.entries(selector.matchLabels).every(
            ([key, value]) => metadata.labels[key] === value,
          ),
      )
      expect(others).toEqual([])
      expect(service).toMatchObject({ spec: { ports: [{ name: endpoints[0]?.port }] } })
      return service?.metadata.labels[jobLabel]
    })
    expect(jobs.sort()).toEqual(['api', 'worker'])
  })

  it('runs a group with GPUs on the CUDA image and keeps its cache of models', () => {
    const chat = own.find(
      ({ metadata, kind }) => kind === 'Deployment' && /chat/.test(metadata.name),
    )
    const pod = podOf(chat as Manifest)
    expect(pod).toMatchObject({ nodeSelector: { 'nvidia.com/gpu.present': 'true' } })
    expect(pod.containers[0]).toMatchObject({
      image: 'registry.example/millrace-worker-gpu:1.2.3',
      resources: { limits: { 'nvidia.com/gpu': 1 } },
    })
    expect(own.map(({ kind }) => kind)).toContain('PersistentVolumeClaim')
    // An upgrade may add the cache, and an API server accepts no change of the strategy's type.
    const strategy = { rollingUpdate: { maxUnavailable: 1, maxSurge: 0 } }
    expect(chat).toMatchObject({ spec: { replicas: 2, strategy } })
  })

  it('makes no Secret beside those that exist', () => {
    expect(own.filter(({ kind }) => kind === 'Secret')).toEqual([])
    expect(whole.filter(({ kind }) => kind === 'Secret')).toHaveLength(2)
  })

  it('passes the linter and refuses unknown values, if helm is installed', ({ skip }) => {
    const lint = runHelm('lint', CHART, '--strict', '--kube-version', '1.31.0')
    if (lint === undefined) return skip('no helm on this machine')
    expect(lint).toMatchObject({ status: 0 })
    for (const [value, field] of [
      ['workers.chat.gpu=1', '/workers/chat'],
      ['keda.enabled=perhaps', '/keda/enabled'],
      ['settings.lower=1', "'lower' does not match"],
    ]) {
      const refused = runHelm(
        'template',
        'm',
        CHART,
        '--kube-version',
        '1.31.0',
        '--set',
        `${value}`,
      )
      expect(refused?.status).toBe(1)
      expect(refused?.output).toContain(field)
    }
  })
})

interface Monitor {
  readonly jobLabel: string
  readonly selector: { readonly matchLabels: Readonly<Record<string, string>> }
  readonly endpoints: readonly { readonly port: string }[]
}

interface Pod {
  readonly terminationGracePeriodSeconds: number
  readonly containers: readonly Container[]
}

interface Container {
  readonly ports: readonly { readonly name: string }[]
  readonly lifecycle?: { readonly preStop: { readonly exec: { readonly command: string[] } } }
  readonly env?: readonly { readonly name: string; readonly value?: string }[]
  readonly livenessProbe: Probe
  readonly readinessProbe: Probe
  readonly startupProbe: Probe
}

interface Probe {
  readonly httpGet: { readonly port: string }
}

interface PodTemplate {
  readonly metadata: { readonly labels: Readonly<Record<string, string>> }
  readonly spec: Pod
}

function templateOf({ spec }: Manifest): PodTemplate {
  return (spec as { template: PodTemplate }).template
}

function podOf(workload: Manifest): Pod {
  return templateOf(workload).spec
}

function settingOf(deployment: Manifest, setting: string): string[] {
  const [container] = podOf(deployment).containers
  return container?.env?.find(({ name }) => name === setting)?.value?.split(',') ?? []
}
