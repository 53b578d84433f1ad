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
