/** The path of a URL, without its query. */
export function pathOf(url: string): string {
  return url.split('?', 1)[0] as string
}

/** The first path segment, which selects the surface; undefined at the root. */
export function firstSegmentOf(url: string): string | undefined {
  return pathOf(url)
    .split('/')
    .find((part) => part !== '')
}

// Clients join their paths to a base address that ends in a slash.
const BASE_PATH = /^\/+(?:(?:auth\/+)?v[12]\/+)?/

/**
 * The URL that is routed. Slashes that clients double at the beginning, behind `/v1` or at the end
 * are joined, and `/v1/models/` means `/v1/models`; other surfaces have routes that end in a slash.
 * Any other empty segment stays: it is an empty path parameter, which no route accepts.
 */
export function routedUrl(url: string): string {
  const path = pathOf(url)
  if (!path.endsWith('/') && !path.includes('//')) return url
  const base = BASE_PATH.exec(path)?.[0] ?? ''
  const end = endOfPath(path, base.length)
  const isBelowV1 = /^\/+v1\//.test(base)
  const ending = end === path.length || end === base.length || isBelowV1 ? '' : '/'
  return joinSlashes(base) + path.slice(base.length, end) + ending + url.slice(path.length)
}

/** Whether a path parameter is empty; only the rest of a path, `*`, may be. */
export function hasEmptyParameter(params: unknown): boolean {
  return Object.entries(params ?? {}).some(([name, value]) => value === '' && name !== '*')
}

/** Where the slashes at the end of a path begin. */
function endOfPath(path: string, start: number): number {
  let end = path.length
  while (end > start && path[end - 1] === '/') end--
  return end
}

function joinSlashes(path: string): string {
  return path
    .split('/')
    .filter((segment, index, all) => segment !== '' || index === 0 || index === all.length - 1)
    .join('/')
}
