import { expandBraces, matchesGlob } from './glob.ts'

/**
 * Which redirect targets are permitted: the origin of the site, and the globs of the allow list.
 */
interface RedirectRules {
  readonly siteUrl: string
  readonly uriAllowList: readonly string[]
}

/**
 * The first permitted candidate, else the site URL. Never an error, because a refusal must not
 * reveal anything.
 */
export function chooseRedirect(
  candidates: readonly (string | undefined)[],
  rules: RedirectRules,
): string {
  const chosen = candidates.find(
    (candidate) => candidate !== undefined && isRedirectAllowed(candidate, rules),
  )
  return chosen ?? rules.siteUrl
}

/** Whether users may be redirected to `target` with their tokens in the URL. */
export function isRedirectAllowed(target: string, rules: RedirectRules): boolean {
  // Browsers read backslashes as slashes and skip control characters; valid targets have neither.
  if (target === '' || target.length > URL_CHARACTERS_MAX || HOSTILE.test(target)) return false
  // A URL without `//` after its scheme has no host.
  if (!ABSOLUTE.test(target) || !URL.canParse(target)) return false
  const url = new URL(target)
  if (url.username !== '' || url.password !== '' || !isHostAsWritten(target, url)) return false
  if (SCRIPT_SCHEMES.has(url.protocol)) return false
  if (isOnSite(url, rules.siteUrl)) return true
  // Browsers remove these segments, and would leave the listed path.
  if (DOT_SEGMENT.test(target)) return false
  if (isForeignAddress(url)) return isListedLiterally(target, rules.uriAllowList)
  return isListed(target, rules.uriAllowList)
}

const URL_CHARACTERS_MAX = 2048
// biome-ignore lint/suspicious/noControlCharactersInRegex: it finds them.
const HOSTILE = /[\u0000-\u0020\u007f\\<>"`{}^|]/
const ABSOLUTE = /^[a-z][a-z0-9+.-]*:\/\//i
const DOT_SEGMENT = /^[^?#]*\/(?:\.|%2e){1,2}(?:[/?#]|$)/i
const SCRIPT_SCHEMES = new Set(['javascript:', 'data:', 'vbscript:', 'file:', 'blob:', 'about:'])
const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/

function isOnSite(url: URL, siteUrl: string): boolean {
  if (!URL.canParse(siteUrl)) return false
  const site = new URL(siteUrl)
  // An empty host (myapp:///home) does not identify the app.
  if (site.hostname === '' || url.hostname.toLowerCase() !== site.hostname.toLowerCase()) {
    return false
  }
  // Another scheme would send the tokens unencrypted or to another app; another port may be another
  // program.
  if (url.protocol !== site.protocol) return false
  // Development servers and native apps listen on any free loopback port (RFC 8252, 7.3).
  return url.port === site.port || (isHttp(url) && LOOPBACK.test(url.hostname))
}

// The parts of an entry are compared one by one, because a wildcard must not extend into another
// part: `https://**.example.com` must not match `https://evil.test/.example.com`, nor
// `https://example.com**` another scheme, host or port.
function isListed(target: string, globs: readonly string[]): boolean {
  const url = new URL(target)
  return globs
    .flatMap((glob) => expandBraces(glob) ?? [])
    .some((glob) => {
      const [, scheme = '', authority = '', path] = GLOB_PARTS.exec(glob) ?? []
      const [, host = '', port = ''] = GLOB_AUTHORITY.exec(authority) ?? []
      return (
        matchesScheme(scheme, url) &&
        matchesHost(path === undefined ? host.replace(ENDING_WILDCARD, '') : host, url) &&
        (matchesGlob(port, url.port) || port === DEFAULT_PORTS[url.protocol]) &&
        matchesGlob(glob, withoutFragment(target))
      )
    })
}

// The host of an app's URL (`myapp://callback`) is the beginning of its path.
function matchesHost(host: string, url: URL): boolean {
  return !isHttp(url) || matchesGlob(host.toLowerCase(), url.hostname)
}

// Apps list their schemes with wildcards (`com.example.app.*://**`); http and https must be written
// out.
function matchesScheme(scheme: string, url: URL): boolean {
  const named = url.protocol.slice(0, -1)
  return isHttp(url) ? scheme.toLowerCase() === named : matchesGlob(scheme, named)
}

const GLOB_PARTS = /^(.*?):\/\/([^/]*)(\/.*)?$/s
const GLOB_AUTHORITY = /^(\\\[[0-9a-f:]+\\\]|[^:]*)(?::(.*))?$/is
// Behind a whole name, the wildcard at the end of an entry without a path means the path.
const ENDING_WILDCARD = /(?<=[a-z0-9])\*+$/i
const DEFAULT_PORTS: Readonly<Record<string, string>> = { 'http:': '80', 'https:': '443' }

function isHttp(url: URL): boolean {
  return url.protocol === 'http:' || url.protocol === 'https:'
}

// The parser maps look-alikes, percent signs and unusual numbers to a host, but a glob matches the
// text. If the two differ, text that looks permitted may lead elsewhere.
function isHostAsWritten(target: string, url: URL): boolean {
  const written = /^[a-z][a-z0-9+.-]*:\/\/([^/?#]*)/i.exec(target)?.[1]?.toLowerCase() ?? ''
  if (!isHttp(url)) return !written.includes('@')
  const hostname = written.replace(/:\d*$/, '')
  return hostname !== '' && hostname === url.hostname
}

// Numeric hosts other than this machine match no glob: `*` must not match an IP address.
function isForeignAddress(url: URL): boolean {
  if (!isHttp(url) || LOOPBACK.test(url.hostname)) return false
  return /^[\d.]+$/.test(url.hostname) || url.hostname.startsWith('[')
}

function isListedLiterally(target: string, globs: readonly string[]): boolean {
  const { origin } = new URL(target)
  return globs.some(
    (glob) => URL.canParse(glob) && new URL(glob).origin === origin && isListed(target, [glob]),
  )
}

function withoutFragment(target: string): string {
  return target.replace(/#.*$/s, '')
}

/** Adds parameters after `#`, keys in alphabetical order; replaces an older fragment. */
export function withFragment(target: string, parameters: Readonly<Record<string, string>>): string {
  return `${withoutFragment(target)}#${encode(parameters)}`
}

/** Adds parameters to the query, replacing those of the same name. */
export function withQuery(target: string, parameters: Readonly<Record<string, string>>): string {
  const [, base = '', query = '', fragment = ''] =
    /^([^?#]*)(?:\?([^#]*))?(#.*)?$/s.exec(target) ?? []
  const merged = new URLSearchParams(query)
  for (const [name, value] of Object.entries(parameters)) merged.set(name, value)
  return `${base}?${merged.toString()}${fragment}`
}

function encode(parameters: Readonly<Record<string, string>>): string {
  const sorted = Object.entries(parameters).sort(([a], [b]) => (a < b ? -1 : 1))
  return new URLSearchParams(sorted).toString()
}
