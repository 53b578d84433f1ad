import { formatGoDuration } from '#shared/clock.ts'

/**
 * A sliding window of one minute: the usage of the current minute plus that of the previous minute,
 * weighted by the share of it that the window still covers.
 */
export interface Window {
  /** 0 means no limit. */
  readonly limit: number
  readonly previous: number
  readonly current: number
}

/** The length of a window. */
export const WINDOW_MS = 60_000

/** The usage of a window. */
export function usedOf({ previous, current }: Window, elapsedMs: number): number {
  return Math.floor((previous * (WINDOW_MS - elapsedMs)) / WINDOW_MS) + current
}

/** The remaining allowance; never below zero. */
export function remainingOf(window: Window, elapsedMs: number): number {
  return Math.max(0, window.limit - usedOf(window, elapsedMs))
}

/** Milliseconds until the whole usage has left the window. */
export function resetMs({ previous, current }: Window, elapsedMs: number): number {
  if (current > 0) return 2 * WINDOW_MS - elapsedMs
  return previous > 0 ? WINDOW_MS - elapsedMs : 0
}

/** Milliseconds until `wanted` fits; undefined when it never fits. */
export function waitMs(window: Window, wanted: number, elapsedMs: number): number | undefined {
  const { limit, previous, current } = window
  const room = limit - wanted
  if (room < 0) return undefined
  if (usedOf(window, elapsedMs) <= room) return 0
  if (current <= room) {
    const shareLeft = (room - current) / previous
    return Math.max(0, WINDOW_MS * (1 - shareLeft) - elapsedMs)
  }
  return WINDOW_MS - elapsedMs + WINDOW_MS * (1 - room / current)
}

/** The tightest of the windows that have a limit. */
export function tightestOf(windows: readonly Window[], elapsedMs: number): Window | undefined {
  return windows
    .filter(({ limit }) => limit > 0)
    .reduce<Window | undefined>(
      (least, window) =>
        least === undefined || remainingOf(window, elapsedMs) < remainingOf(least, elapsedMs)
          ? window
          : least,
      undefined,
    )
}

/** The three headers of one dimension; none when it has no limit. */
export function limitHeaders(
  dimension: 'requests' | 'tokens',
  windows: readonly Window[],
  elapsedMs: number,
): Readonly<Record<string, string>> {
  const window = tightestOf(windows, elapsedMs)
  if (window === undefined) return {}
  return {
    [`x-ratelimit-limit-${dimension}`]: String(window.limit),
    [`x-ratelimit-remaining-${dimension}`]: String(remainingOf(window, elapsedMs)),
    [`x-ratelimit-reset-${dimension}`]: formatGoDuration(resetMs(window, elapsedMs)),
  }
}
