import { addressOf } from './place.js'
import { Problem, problemOf } from './problem.js'

/**
 * @typedef {{ kind: 'key', key: string }} KeyCredential
 * @typedef {{ kind: 'user', accessToken: string, refreshToken: string, expiresAtMs: number, name:
 * string }} UserCredential @typedef {KeyCredential | UserCredential} Credential @typedef {{
 * access_token: string, refresh_token: string, expires_in: number | string, user?: { email?: string
 * } }} Tokens
 */

const STORAGE_KEY = 'millrace.playground'
const USERS = addressOf('/auth/v1')
/** An access token that expires sooner is refreshed first. */
const MARGIN_MS = 60_000
/** Status codes of a refresh that can never succeed; 429 is not among them. */
const ENDED = [400, 401, 403, 404, 422]

/** @type {Credential | undefined} */
let credential = readStored()
/** @type {Promise<void> | undefined} */
let renewal

/** The current credential. */
export function current() {
  return credential
}

/** @param {Credential} next @param {{ stays: boolean }} options */
export function signInAs(next, { stays }) {
  credential = next
  // The credential of this tab takes precedence after a reload.
  if (stays) sessionStorage.removeItem(STORAGE_KEY)
  store(stays ? localStorage : sessionStorage)
}

/** Calls back when another tab has signed out the same user. @param {() => void} react */
export function onSignedOutElsewhere(react) {
  addEventListener('storage', () => {
    if (credential === undefined || readStored() !== undefined) return
    credential = undefined
    react()
  })
}

/** Removes the credential, and ends the user's session on the server. */
export async function signOut() {
  const left = credential
  credential = undefined
  sessionStorage.removeItem(STORAGE_KEY)
  localStorage.removeItem(STORAGE_KEY)
  if (left?.kind !== 'user') return
  const headers = { authorization: `Bearer ${left.accessToken}` }
  // The sign-out takes effect here even if the request fails; the page does not wait.
  const request = { method: 'POST', headers, keepalive: true }
  await fetch(`${USERS}/logout?scope=local`, request).catch(() => undefined)
}

/** The bearer token of a request. @returns {Promise<string>} */
export async function bearer() {
  if (credential === undefined) throw new Problem('Please sign in first.', 401)
  if (credential.kind === 'key') return credential.key
  if (credential.expiresAtMs - Date.now() < MARGIN_MS) {
    renewal ??= renew(credential).finally(() => {
      renewal = undefined
    })
    await renewal
  }
  return /** @type {UserCredential} */ (credential).accessToken
}

/**
 * The credential in an answer of the user server. @param {Tokens} tokens @returns {UserCredential}
 */
export function userOf(tokens) {
  return {
    kind: 'user',
    accessToken: tokens.access_token,
    refreshToken: tokens.refresh_token,
    expiresAtMs: Date.now() + Number(tokens.expires_in) * 1000,
    name: tokens.user?.email ?? emailIn(tokens.access_token),
  }
}

/**
 * Sends a request to the user server.
 * @param {string} path @param {{ method?: string, body?: object, accessToken?: string }} [options]
 * @returns {Promise<any>}
 */
export async function askUsers(path, { method = 'POST', body, accessToken } = {}) {
  const response = await fetch(`${USERS}${path}`, {
    method,
    headers: {
      'content-type': 'application/json',
      ...(accessToken !== undefined && { authorization: `Bearer ${accessToken}` }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  if (response.ok) return response.status === 204 ? undefined : response.json()
  const problem = await problemOf(response)
  // These statuses concern the user, not a key, so the server's own message is shown.
  throw new Problem(
    problem.message.replace(/^(The key|This is not allowed).*?\. (?=.)/, ''),
    problem.status,
  )
}

/** @param {UserCredential} known */
async function renew(known) {
  const stored = readStored()
  // Another tab may have refreshed the token already.
  if (stored?.kind === 'user' && stored.expiresAtMs > known.expiresAtMs) {
    credential = stored
    return
  }
  try {
    const body = { refresh_token: known.refreshToken }
    const tokens = await askUsers('/token?grant_type=refresh_token', { body })
    credential = { ...userOf(tokens), name: known.name }
    store(localStorage.getItem(STORAGE_KEY) === null ? sessionStorage : localStorage)
  } catch (error) {
    if (error instanceof Problem && ENDED.includes(error.status)) {
      throw new Problem('Your sign-in has ended. Please sign in again.', 401)
    }
    throw error
  }
}

/** @param {Storage} storage */
function store(storage) {
  storage.setItem(STORAGE_KEY, JSON.stringify(credential))
}

/** @returns {Credential | undefined} */
function readStored() {
  const text = sessionStorage.getItem(STORAGE_KEY) ?? localStorage.getItem(STORAGE_KEY)
  try {
    const stored = JSON.parse(text ?? 'null')
    if (stored?.kind === 'key' && typeof stored.key === 'string') return stored
    if (stored?.kind === 'user' && typeof stored.accessToken === 'string') return stored
  } catch {
    // The stored value is not ours.
  }
  return undefined
}

/** The email address in an access token, for display only. @param {string} accessToken */
function emailIn(accessToken) {
  try {
    const payload = accessToken.split('.')[1] ?? ''
    const bytes = Uint8Array.from(atob(payload.replace(/-/g, '+').replace(/_/g, '/')), (c) =>
      c.charCodeAt(0),
    )
    const { email } = JSON.parse(new TextDecoder().decode(bytes))
    return typeof email === 'string' && email !== '' ? email : 'a guest'
  } catch {
    return 'a guest'
  }
}
