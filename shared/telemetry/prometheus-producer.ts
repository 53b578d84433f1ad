import { type HrTime, ValueType } from '@opentelemetry/api'
import { emptyResource } from '@opentelemetry/resources'
import {
  AggregationTemporality,
  type CollectionResult,
  type DataPoint,
  DataPointType,
  type Histogram,
  type MetricData,
  type MetricProducer,
} from '@opentelemetry/sdk-metrics'

import type { Registry } from './registry.ts'

type Row = Awaited<ReturnType<Registry['getMetricsAsJSON']>>[number]

interface Sample {
  readonly value: number
  readonly labels: Readonly<Record<string, string | number>>
  readonly metricName?: string
}

/**
 * Passes the registry to an OTLP exporter, so that both exports have the same numbers under the
 * same names.
 */
export class PrometheusProducer implements MetricProducer {
  readonly #registry: Registry
  readonly #version: string
  readonly #startTime: HrTime = hrTime(Date.now())

  constructor(registry: Registry, version: string) {
    this.#registry = registry
    this.#version = version
  }

  async collect(): Promise<CollectionResult> {
    const endTime = hrTime(Date.now())
    const rows = await this.#registry.getMetricsAsJSON()
    const metrics = rows.map((row) => toMetricData(row, { startTime: this.#startTime, endTime }))
    return {
      // The reader replaces it with the resource of the process.
      resourceMetrics: {
        resource: emptyResource(),
        scopeMetrics: [{ scope: { name: 'millrace', version: this.#version }, metrics }],
      },
      errors: [],
    }
  }
}

interface Times {
  readonly startTime: HrTime
  readonly endTime: HrTime
}

function toMetricData(row: Row, times: Times): MetricData {
  const base = {
    descriptor: {
      name: row.name,
      description: row.help,
      unit: row.name.endsWith('_seconds') ? 's' : '',
      valueType: ValueType.DOUBLE,
    },
    aggregationTemporality: AggregationTemporality.CUMULATIVE,
  }
  const samples = row.values as readonly Sample[]
  // The library declares a number but returns the name.
  switch (String(row.type)) {
    case 'histogram':
      return {
        ...base,
        dataPointType: DataPointType.HISTOGRAM,
        dataPoints: histogramPoints(samples, times),
      }
    case 'counter':
      return {
        ...base,
        dataPointType: DataPointType.SUM,
        isMonotonic: true,
        dataPoints: samples.map((sample) => point(sample, times)),
      }
    default:
      return {
        ...base,
        dataPointType: DataPointType.GAUGE,
        dataPoints: samples.map((sample) => point(sample, times)),
      }
  }
}

function point({ value, labels }: Sample, times: Times): DataPoint<number> {
  return { ...times, attributes: { ...labels }, value }
}

/** Collects the lines of each histogram: cumulative buckets become counts per bucket. */
function histogramPoints(samples: readonly Sample[], times: Times): DataPoint<Histogram>[] {
  const found = new Map<string, { labels: Sample['labels']; bounds: number[]; totals: number[] }>()
  const sums = new Map<string, number>()
  for (const { value, labels, metricName = '' } of samples) {
    const { le, ...others } = labels
    const key = JSON.stringify(others)
    if (metricName.endsWith('_sum')) sums.set(key, value)
    if (!metricName.endsWith('_bucket')) continue
    const entry = found.get(key) ?? { labels: others, bounds: [], totals: [] }
    found.set(key, entry)
    if (le !== '+Inf') entry.bounds.push(Number(le))
    entry.totals.push(value)
  }
  return [...found].map(([key, { labels, bounds, totals }]) => ({
    ...times,
    attributes: { ...labels },
    value: {
      buckets: {
        boundaries: bounds,
        counts: totals.map((total, index) => total - (totals[index - 1] ?? 0)),
      },
      sum: sums.get(key) ?? 0,
      count: totals.at(-1) ?? 0,
    },
  }))
}

function hrTime(ms: number): HrTime {
  const seconds = Math.floor(ms / 1000)
  return [seconds, Math.round((ms - seconds * 1000) * 1e6)]
}
