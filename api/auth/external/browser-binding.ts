import { createHash, timingSafeEqual } from 'node:crypto'

import { randomSecret } from '#api/auth/secrets.ts'

/** The browser behind a request. */
export interface Browser {
  /** Its secret, if it has one. */
  readonly secret: string | undefined
  /** True when a person's browser opens a URL; programs do not send this header. */
  readonly isNavigation: boolean
  /** The host and port of the request. */
  readonly host: string
}

/** The secret of a browser, and the cookie that holds it. */
export interface Binding {
  readonly secret: string
  readonly cookie: string
}

/** The cookie of browsers during a sign-in at a provider. */
const BINDING_COOKIE = 'millrace_oauth'

const COOKIE_SECONDS = 600
const SECRET = /^[\w-]{20,64}$/
const SEPARATOR = '.'

/** Reads the secret of a browser from a Cookie header. */
export function findBindingSecret(header: string | undefined): string | undefined {
  const prefix = `${BINDING_COOKIE}=`
  const found = header?.split(';').find((part) => part.trim().startsWith(prefix))
  const secret = found?.trim().slice(prefix.length) ?? ''
  return SECRET.test(secret) ? secret : undefined
}

/**
 * Binds an external sign-in to the browser that starts it, so that opening the callback of another
 * person's sign-in starts no session. Undefined if a cookie would not be returned: when the
 * provider redirects to another host, or posts a form over plain HTTP.
 */
export function bindBrowser(
  browser: Browser,
  callback: { readonly redirectUri: string; readonly isFormPost: boolean },
): Binding | undefined {
  if (!URL.canParse(callback.redirectUri)) return undefined
  const { protocol, host } = new URL(callback.redirectUri)
  const isSecure = protocol === 'https:'
  if (host !== browser.host || (callback.isFormPost && !isSecure)) return undefined
  // All tabs share one secret, so that a second sign-in does not void the first.
  const secret = browser.secret ?? randomSecret()
  const attributes = [
    `${BINDING_COOKIE}=${secret}`,
    'Path=/',
    'HttpOnly',
    `Max-Age=${COOKIE_SECONDS}`,
    callback.isFormPost ? 'SameSite=None' : 'SameSite=Lax',
    ...(isSecure ? ['Secure'] : []),
  ]
  return { secret, cookie: attributes.join('; ') }
}

/** A state that only the browser with this secret may return. */
export function bindState(state: string, secret: string | undefined): string {
  return secret === undefined ? state : `${state}${SEPARATOR}${digestOf(secret)}`
}

/**
 * False when a browser returns a state that belongs to another one. Programs that follow redirects
 * themselves cannot be tricked into opening a URL, so they pass.
 */
export function isOwnState(state: string, browser: Browser): boolean {
  const [, digest] = state.split(SEPARATOR)
  if (digest === undefined || !browser.isNavigation) return true
  const [a, b] = [Buffer.from(digest), Buffer.from(digestOf(browser.secret ?? ''))]
  return a.length === b.length && timingSafeEqual(a, b)
}

/** True when the browser with this secret began the flow of the state. */
export function isBoundTo(state: string, browser: Browser): boolean {
  const isBound = state.includes(SEPARATOR) && browser.secret !== undefined
  return isBound && isOwnState(state, { ...browser, isNavigation: true })
}

function digestOf(secret: string): string {
  return createHash('sha256').update(`browser:${secret}`).digest('base64url')
}
