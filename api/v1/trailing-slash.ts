import { pathOf } from '#api/http/url-path.ts'

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
