import { pathOf } from '#api/http/url-path.ts'

/**
 * How one gets from a page to the root of this service: what links begin with, so that they lead to
 * the right place also where a proxy serves it below a path of its own.
 */
export function wayToRoot(url: string): string {
  const depth = pathOf(url).split('/').length - 2
  return depth > 0 ? '../'.repeat(depth) : './'
}
