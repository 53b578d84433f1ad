import htm from 'htm'
import { h } from 'preact'

import { figure } from './admin-figures.js'

// Functions that the pages of the console share: markup, the API, formats.

/**
 * An answer of the console's own API; the tests of its areas hold the shapes.
 * @typedef {Record<string, any>} Row
 */

/** Markup of components: `html`<p>…</p>``; inserted values become nodes, never markup. */
export const html = htm.bind(h)

const API = new URL('../../api/', import.meta.url)
const TIMEOUT_MS = 30_000
const ROLES = ['viewer', 'operator', 'administrator']

const page = /** @type {HTMLElement} */ (document.getElementById('page'))
const token = /** @type {HTMLInputElement | null} */ (document.querySelector('input[name=form]'))

/** The name of the page, and what its address asks for. */
export const place = {
  element: page,
  name: page.dataset.page ?? '',
  params: new URLSearchParams(location.search),
}

/** Whether the signed-in role may do what another is needed for. @param {string} role */
export function may(role) {
  return ROLES.indexOf(page.dataset.role ?? '') >= ROLES.indexOf(role)
}

/** The address of an API path, such as a file to download. @param {string} path */
export function apiUrl(path) {
  return new URL(path.replace(/^\//, ''), API).href
}

/** Reads from the API. @param {string} path @returns {Promise<Row>} */
export function read(path) {
  return send('GET', path)
}

/**
 * Sends a request to the API; failures become errors with the message of the answer.
 * @param {string} method @param {string} path @param {object} [body] @returns {Promise<Row>}
 */
export async function send(method, path, body) {
  const answer = await fetch(apiUrl(path), {
    method,
    headers: {
      accept: 'application/json',
      ...(method !== 'GET' && { 'x-console-token': token?.value ?? '' }),
      ...(body !== undefined && { 'content-type': 'application/json' }),
    },
    signal: AbortSignal.timeout(TIMEOUT_MS),
    ...(body !== undefined && { body: JSON.stringify(body) }),
  }).catch(() => {
    throw new Error('The server cannot be reached.')
  })
  if (answer.ok) return answer.json()
  if (answer.status === 401) {
    throw new Error('You have been signed out. Reload the page to sign in again.')
  }
  throw new Error(messageOf(await answer.text()))
}

/** @param {string} text */
function messageOf(text) {
  try {
    return /** @type {Row} */ (JSON.parse(text)).error.message
  } catch {
    return text.slice(0, 200) || 'The request failed.'
  }
}

/** One part of a path. @param {unknown} value */
export function part(value) {
  return encodeURIComponent(String(value))
}

const WHEN = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'short' })

/** A moment in the time zone of the browser; empty for none. @param {unknown} value */
export function when(value) {
  return typeof value === 'string' || typeof value === 'number' ? WHEN.format(new Date(value)) : ''
}

/** @param {unknown} value */
export function number(value) {
  return typeof value === 'number' ? figure(value) : ''
}

const UNITS = ['B', 'KB', 'MB', 'GB', 'TB']

/** @param {unknown} value */
export function bytes(value) {
  if (typeof value !== 'number') return ''
  const power = Math.min(UNITS.length - 1, Math.floor(Math.log10(Math.max(value, 1)) / 3))
  return `${figure(value / 1000 ** power)} ${UNITS[power]}`
}

/** A link to a page of the console. @param {string} name @param {Record<string, string>} params */
export function pageUrl(name, params) {
  return `./${name}?${new URLSearchParams(params)}`
}
