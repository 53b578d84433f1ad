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
