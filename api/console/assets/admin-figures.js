// Formats numbers for display.

/** Shown for a missing value. */
export const NOTHING = '–'

/** `rateLimited` in words. @param {string} kind */
export function words(kind) {
  return kind.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)
}

/**
 * The sum over a list. @template T @param {readonly T[]} list @param {(entry: T) => number} amount
 */
export function sum(list, amount) {
  return list.reduce((total, entry) => total + amount(entry), 0)
}

/** With one decimal at most. @param {number} value */
export function figure(value) {
  return (Math.round(value * 10) / 10).toLocaleString('en')
}

/** From 0 to 1. @param {number} share */
export function percent(share) {
  return `${Math.round(share * 100)} %`
}

/** Empty when unknown. @param {number | undefined} ms */
export function optionalDuration(ms) {
  return ms === undefined ? NOTHING : duration(ms)
}

/** In a readable unit. @param {number} ms */
export function duration(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`
  const seconds = ms / 1000
  if (seconds < 10) return `${(Math.round(seconds * 10) / 10).toLocaleString('en')} s`
  if (seconds < 100) return `${Math.round(seconds)} s`
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`
  if (seconds < 48 * 3600) return `${Math.round(seconds / 3600)} h`
  return `${Math.round(seconds / 86_400)} d`
}
