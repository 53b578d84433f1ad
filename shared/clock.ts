/** Where the time comes from; tests pass a frozen one. */
export interface Clock {
  /** Milliseconds since the Unix epoch. */
  now(): number
  /** Milliseconds that only ever grow, for measuring durations. */
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
