/** Shown for a missing value. */
export const NOTHING: string
export function words(kind: string): string
export function sum<T>(list: readonly T[], amount: (entry: T) => number): number
export function figure(value: number): string
export function percent(share: number): string
export function optionalDuration(ms: number | undefined): string
export function duration(ms: number): string
