import { appendFileSync } from 'node:fs'

/** Whether the whole counts are asked for; else each case runs in its short form. */
export const isFull = process.env.FAULT_SCALE === 'full'

/** The count of a case in its full and in its short form. */
export const scale = (full: number, short: number): number => (isFull ? full : short)

/** Prints what a case counted, and appends it to the file that FAULT_REPORT names. */
export function report(id: string, counts: Readonly<Record<string, number | string>>): void {
  const text = Object.entries(counts)
    .map(([name, value]) => `${name} ${typeof value === 'number' ? round(value) : value}`)
    .join(' · ')
  process.stdout.write(`${id} | ${text}\n`)
  const file = process.env.FAULT_REPORT
  if (file !== undefined && file !== '') appendFileSync(file, `| ${id} | ${text} |\n`)
}

/** The value below which a share of the values lies; 0 of none. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.min(Math.ceil(share * sorted.length), sorted.length) - 1] ?? 0
}

const round = (value: number): number => Math.round(value * 1000) / 1000
