import type { Redis } from 'ioredis'

import type { Logger } from '#shared/logger.ts'
import { defineScript, runScript } from '#shared/queue/connection.ts'

/** The ranges that are shown, each with its own buckets. */
export const SERIES_RANGES = {
  hour: { bucketMs: 60_000, buckets: 60 },
  day: { bucketMs: 15 * 60_000, buckets: 96 },
} as const

export type SeriesRange = keyof typeof SERIES_RANGES

/** The numbers that are summed over all processes. */
type Counted = 'requests' | 'errors' | 'refusals' | 'prompt_tokens' | 'completion_tokens'

/** State that one process reads on behalf of all, at intervals. */
export interface SeriesSample {
  readonly slots: number
  readonly slotsUsed: number
  readonly waiting: number
  readonly oldestWaitMs: number
}

/** One bucket; a value is null if nothing was recorded. */
interface SeriesPoint {
  readonly at: number
  readonly requests: number
  readonly errors: number
  readonly refusals: number
  readonly prompt_tokens: number
  readonly completion_tokens: number
  readonly latency_p50_ms: number | null
  readonly latency_p95_ms: number | null
  readonly latency_p99_ms: number | null
  readonly queue_p95_ms: number | null
  readonly slots: number | null
  readonly slots_used: number | null
  readonly waiting: number | null
  readonly oldest_wait_ms: number | null
}

const FLUSH_INTERVAL_MS = 1000
/** How often one of the processes samples queues and workers. */
const SAMPLE_INTERVAL_MS = 10_000
/** The bounds of durations grow by a fifth, which is the precision of a percentile. */
const STEP = 1.2
const STEPS_MAX = 90

/**
 * Adds sums and keeps maxima. KEYS: bucket; ARGV: time to live, then kind (`+`, `^`), field, value.
 */
const MERGE = defineScript(`
for i = 2, #ARGV, 3 do
  local value = tonumber(ARGV[i + 2])
  if ARGV[i] == '+' then redis.call('HINCRBY', KEYS[1], ARGV[i + 1], value)
  elseif value > tonumber(redis.call('HGET', KEYS[1], ARGV[i + 1]) or '-1') then
    redis.call('HSET', KEYS[1], ARGV[i + 1], value)
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 0
`)

/**
 * Requests, tokens, durations, queues and slots of the last hour and day, in buckets in Redis to
 * which every API process adds. A bucket has at most 200 small fields, and expires with its range.
 * Written in the background: requests do not wait, and values that Redis refuses are lost.
 */
export class SeriesLog {
  readonly #redis: Redis
  readonly #prefix: string
  readonly #log: Logger
  readonly #sums = new Map<string, number>()
  readonly #maxima = new Map<string, number>()
  readonly #timers: NodeJS.Timeout[] = []

  constructor(options: {
    readonly redis: Redis
    readonly prefix: string
    readonly log: Logger
  }) {
    const { redis, prefix, log } = options
    this.#redis = redis
    this.#prefix = `${prefix}:admin:series`
    this.#log = log
    this.#every(FLUSH_INTERVAL_MS, () => this.flush())
  }

  /** Starts sampling queues and workers; one process at a time does so. */
  startSampling(read: () => Promise<SeriesSample>): void {
    this.#every(SAMPLE_INTERVAL_MS, () => this.sample(read))
  }

  count(name: Counted, amount = 1): void {
    if (amount > 0) this.#add(name, Math.round(amount))
  }

  /** Records a duration of an answer, or of a wait in the queue. */
  time(name: 'latency' | 'queue', ms: number): void {
    this.#add(`${name} ${stepOf(ms)}`, 1)
  }

  /** Samples queues and workers in the process that holds the lease of the interval. */
  async sample(read: () => Promise<SeriesSample>): Promise<void> {
    const lease = `${this.#prefix}:sampler`
    if ((await this.#redis.set(lease, '1', 'PX', SAMPLE_INTERVAL_MS - 500, 'NX')) === null) return
    const { slots, slotsUsed, waiting, oldestWaitMs } = await read()
    this.#add('samples', 1)
    this.#add('slots', slots)
    this.#add('slots_used', slotsUsed)
    this.#add('waiting', waiting)
    const oldest = Math.max(this.#maxima.get('oldest_wait_ms') ?? 0, Math.round(oldestWaitMs))
    this.#maxima.set('oldest_wait_ms', oldest)
  }

  #add(field: string, value: number): void {
    this.#sums.set(field, (this.#sums.get(field) ?? 0) + value)
  }

  /** Writes the values recorded since the last write. */
  async flush(): Promise<void> {
    const sums = [...this.#sums].flatMap(([field, value]) => ['+', field, String(value)])
    const maxima = [...this.#maxima].flatMap(([field, value]) => ['^', field, String(value)])
    this.#sums.clear()
    this.#maxima.clear()
    if (sums.length + maxima.length === 0) return
    const write = async (range: SeriesRange): Promise<unknown> => {
      const { bucketMs, buckets } = SERIES_RANGES[range]
      const ttlMs = String(bucketMs * (buckets + 1))
      return runScript(
        this.#redis,
        MERGE,
        [this.#key(range, Date.now())],
        [ttlMs, ...sums, ...maxima],
      )
    }
    await this.#quietly(Promise.all([write('hour'), write('day')]))
  }

  /** The buckets of a range, the oldest first. */
  async read(range: SeriesRange): Promise<readonly SeriesPoint[]> {
    const { bucketMs, buckets } = SERIES_RANGES[range]
    const newest = Math.floor(Date.now() / bucketMs) * bucketMs
    const times = Array.from({ length: buckets }, (_, i) => newest - (buckets - 1 - i) * bucketMs)
    const pipeline = this.#redis.pipeline()
    for (const time of times) pipeline.hgetall(this.#key(range, time))
    const answers = (await pipeline.exec()) ?? []
    return times.map((at, index) => {
      const [error, fields] = answers[index] ?? [null, {}]
      if (error !== null) throw error
      return pointOf(at, fields as Readonly<Record<string, string>>)
    })
  }

  async close(): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer)
    await this.flush()
  }

  #every(intervalMs: number, work: () => Promise<void>): void {
    const timer = setInterval(() => void this.#quietly(work()), intervalMs)
    timer.unref()
    this.#timers.push(timer)
  }

  #key(range: SeriesRange, timeMs: number): string {
    return `${this.#prefix}:${range}:${Math.floor(timeMs / SERIES_RANGES[range].bucketMs)}`
  }

  async #quietly(work: Promise<unknown>): Promise<void> {
    try {
      await work
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error)
      this.#log.debug({ operation: 'admin.series', reason }, 'series not kept')
    }
  }
}

function pointOf(at: number, fields: Readonly<Record<string, string>>): SeriesPoint {
  const sum = (name: string): number => Number(fields[name] ?? 0)
  const samples = sum('samples')
  const mean = (name: string): number | null => (samples === 0 ? null : sum(name) / samples)
  const latencies = histogramOf(fields, 'latency')
  return {
    at,
    requests: sum('requests'),
    errors: sum('errors'),
    refusals: sum('refusals'),
    prompt_tokens: sum('prompt_tokens'),
    completion_tokens: sum('completion_tokens'),
    latency_p50_ms: percentile(latencies, 0.5),
    latency_p95_ms: percentile(latencies, 0.95),
    latency_p99_ms: percentile(latencies, 0.99),
    queue_p95_ms: percentile(histogramOf(fields, 'queue'), 0.95),
    slots: mean('slots'),
    slots_used: mean('slots_used'),
    waiting: mean('waiting'),
    oldest_wait_ms: samples === 0 ? null : sum('oldest_wait_ms'),
  }
}

type Histogram = readonly (readonly [step: number, count: number])[]

function histogramOf(fields: Readonly<Record<string, string>>, name: string): Histogram {
  return Object.entries(fields)
    .filter(([field]) => field.startsWith(`${name} `))
    .map(([field, count]) => [Number(field.slice(name.length + 1)), Number(count)] as const)
    .sort(([a], [b]) => a - b)
}

function percentile(histogram: Histogram, share: number): number | null {
  const total = histogram.reduce((sum, [, count]) => sum + count, 0)
  let left = total * share
  for (const [step, count] of histogram) {
    left -= count
    if (left <= 0) return Math.round(STEP ** step)
  }
  return null
}

/** The first step whose bound, `1.2 ** step` milliseconds, is at least the duration. */
function stepOf(ms: number): number {
  return Math.min(STEPS_MAX, Math.max(0, Math.ceil(Math.log(Math.max(ms, 1)) / Math.log(STEP))))
}
