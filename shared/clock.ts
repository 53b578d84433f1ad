/** The source of time; tests pass a frozen one. */
export interface Clock {
  /** Milliseconds since the Unix epoch. */
  now(): number
  /** Monotonic milliseconds, for measuring durations. */
  monotonic(): number
}

/** The clock of this machine. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
}

/** A moment in whole Unix seconds, as the `/v1` dialect writes it. */
export function unixSeconds(ms: number): number {
  return Math.floor(ms / 1000)
}

/** Settles like the work, or rejects with `late()` when the work takes longer than `limitMs`. */
export async function withinTime<T>(
  work: Promise<T>,
  limitMs: number,
  late: () => Error,
): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const timeout = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(late()), limitMs)
  })
  try {
    return await Promise.race([work, timeout])
  } finally {
    clearTimeout(timer)
  }
}

const UNIT_MS = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  ms: 1,
  s: 1e3,
  m: 60e3,
  h: 3600e3,
  d: 86400e3,
} as const
const PART = /(\d+(?:\.\d+)?|\.\d+)(ns|us|µs|ms|s|m|h|d)/g

/**
 * Parses a duration such as `900` (seconds), `15m`, `1h30m` or `250ms` into milliseconds; undefined
 * for any other text. Follows Go's `time.ParseDuration`, with bare numbers as seconds and `d` for
 * days.
 */
export function parseDurationMs(text: string): number | undefined {
  const trimmed = text.trim()
  if (/^\d+(\.\d+)?$/.test(trimmed)) return countable(Number(trimmed) * 1000)
  let totalMs = 0
  let consumed = 0
  for (const match of trimmed.matchAll(PART)) {
    if (match.index !== consumed) return undefined
    totalMs += Number(match[1]) * UNIT_MS[match[2] as keyof typeof UNIT_MS]
    consumed += match[0].length
  }
  return consumed > 0 && consumed === trimmed.length ? countable(totalMs) : undefined
}

/** Too many digits overflow to Infinity, which is not a duration. */
const countable = (ms: number): number | undefined => (Number.isFinite(ms) ? ms : undefined)

/** A duration in Go's style, as rate-limit headers write it: `120ms`, `8.64s`, `6m0s`. */
export function formatGoDuration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.ceil(ms))}ms`
  const seconds = Math.ceil(ms / 10) / 100
  const hours = Math.floor(seconds / 3600)
  const minutes = Math.floor((seconds % 3600) / 60)
  const rest = `${Number((seconds % 60).toFixed(2))}s`
  if (hours > 0) return `${hours}h${minutes}m${rest}`
  return minutes > 0 ? `${minutes}m${rest}` : rest
}
