import { number } from './ui.js'

/** @typedef {import('./ui.js').Row} Row */

/** The fields of quotas. */
export const QUOTAS = [
  { name: 'requests_per_day', label: 'Requests in a day' },
  { name: 'requests_per_month', label: 'Requests in a month' },
  { name: 'tokens_per_day', label: 'Tokens in a day' },
  { name: 'tokens_per_month', label: 'Tokens in a month' },
  { name: 'cost_per_day', label: 'Cost in a day', step: 'any' },
  { name: 'cost_per_month', label: 'Cost in a month', step: 'any' },
]

/**
 * The quotas of a row that are set.
 *
 * @param {Row} row
 */
export function quotasText(row) {
  return QUOTAS.filter(({ name }) => row[name] !== null).map(
    ({ name, label }) => `${label.toLowerCase()}: ${number(row[name])}`,
  )
}
