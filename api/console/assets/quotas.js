import { number } from './ui.js'

/** @typedef {import('./ui.js').Row} Row */

/** The fields of quotas. */
export const QUOTAS = [
  { name: 'requests_per_day', label: 'Requests per day' },
  { name: 'requests_per_month', label: 'Requests per month' },
  { name: 'tokens_per_day', label: 'Tokens per day' },
  { name: 'tokens_per_month', label: 'Tokens per month' },
  { name: 'cost_per_day', label: 'Cost per day', step: 'any' },
  { name: 'cost_per_month', label: 'Cost per month', step: 'any' },
]

/**
 * Describes the quotas that a row sets.
 *
 * @param {Row} row
 */
export function quotasText(row) {
  return QUOTAS.filter(({ name }) => row[name] !== null).map(
    ({ name, label }) => `${label.toLowerCase()}: ${number(row[name])}`,
  )
}
