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

/**
 * The address of a request without the slashes that some clients put behind what they call: `/v1/models/`
 * means `/v1/models`. Other surfaces have paths of their own that end so.
 */
export function withoutTrailingSlash(url: string): string {
  const path = pathOf(url)
  if (!path.endsWith('/') || !/^\/+v1\/+[^/]/.test(path)) return url
  let end = path.length
  while (path[end - 1] === '/') end--
  return path.slice(0, end) + url.slice(path.length)
}
