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

/** The tightest limit of one dimension, as headers state it. */
interface LimitState {
  readonly dimension: 'requests' | 'tokens'
  readonly limit: number
  readonly remaining: number
  /** Milliseconds until the whole limit is available again. */
  readonly resetMs: number
}

/** Writes the headers of one dimension in the dialect of a route. */
export type PresentLimit = (state: LimitState, nowMs: number) => Readonly<Record<string, string>>

/** The state of the tightest window of one dimension; undefined when it has no limit. */
export function limitState(
  dimension: LimitState['dimension'],
  windows: readonly Window[],
  elapsedMs: number,
): LimitState | undefined {
  const window = tightestOf(windows, elapsedMs)
  if (window === undefined) return undefined
  const remaining = remainingOf(window, elapsedMs)
  return { dimension, limit: window.limit, remaining, resetMs: resetMs(window, elapsedMs) }
}

/** The three headers of one dimension in the dialect of OpenAI. */
export const limitHeaders: PresentLimit = ({ dimension, limit, remaining, resetMs }) => ({
  [`x-ratelimit-limit-${dimension}`]: String(limit),
  [`x-ratelimit-remaining-${dimension}`]: String(remaining),
  [`x-ratelimit-reset-${dimension}`]: formatGoDuration(resetMs),
})
