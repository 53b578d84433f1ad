import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'

import { renderKustomization } from '#test/support/kustomize.ts'

const FOLDER = join(import.meta.dirname, '../../../deploy')
const objects = renderKustomization(join(FOLDER, 'kubernetes/monitoring'))

interface Pods {
  readonly metadata: { readonly labels: Readonly<Record<string, string>> }
  readonly spec: { readonly containers: readonly { readonly ports: readonly { name: string }[] }[] }
}

interface Monitor {
  readonly jobLabel: string
  readonly selector: { readonly matchLabels: Readonly<Record<string, string>> }
  readonly podMetricsEndpoints: readonly { readonly port: string; readonly path: string }[]
}

const monitors = objects
  .filter(({ kind }) => kind === 'PodMonitor')
  .map(({ spec }) => spec as unknown as Monitor)
const pods = objects
  .filter(({ kind }) => kind === 'Deployment')
  .map(({ spec }) => (spec as { template: Pods }).template)
// The jobs that the alerts and the dashboard speak of.
const JOBS = ['api', 'worker']

describe('deploy/kubernetes/monitoring', () => {
  it('is the base and what watches it', () => {
    const kinds = new Set(objects.map(({ kind }) => kind))
    for (const kind of ['ScaledObject', 'PrometheusRule', 'PodMonitor'])
      expect(kinds).toContain(kind)
    expect(objects.every(({ metadata }) => metadata.namespace === 'millrace')).toBe(true)
  })

  it('scrapes every pod on a port that it has, under the job of its tier', () => {
    for (const { metadata, spec } of pods) {
      const own = monitors.filter(({ selector }) =>
        Object.entries(selector.matchLabels).every(
          ([key, value]) => metadata.labels[key] === value,
        ),
      )
      expect(own).toHaveLength(1)
      for (const { jobLabel, podMetricsEndpoints } of own) {
        expect(JOBS).toContain(metadata.labels[jobLabel])
        const ports = spec.containers.flatMap((container) =>
          container.ports.map(({ name }) => name),
        )
        for (const { port, path } of podMetricsEndpoints) {
          expect(ports).toContain(port)
          expect(path).toBe('/metrics')
        }
      }
    }
  })
})

describe('deploy/monitoring/prometheus.yml', () => {
  it('scrapes the same jobs in containers, and reads the alerts', () => {
    const text = readFileSync(join(FOLDER, 'monitoring/prometheus.yml'), 'utf8')
    const config = parse(text) as {
      rule_files: string[]
      scrape_configs: { job_name: string; metrics_path: string }[]
    }
    expect(config.scrape_configs.map(({ job_name }) => job_name).sort()).toEqual(JOBS)
    expect(config.rule_files).toEqual(['alerts.yml'])
  })
})
