import { pathOf } from '#api/http/url-path.ts'

/**
 * The relative path from a page to the root of this service: the prefix of all links, so that they
 * also work below a path prefix of a proxy.
 */
export function wayToRoot(url: string): string {
  const depth = pathOf(url).split('/').length - 2
  return depth > 0 ? '../'.repeat(depth) : './'
}
