/**
 * How one gets from a page to the root of this service: what links begin with, so that they lead to
 * the right place also where a proxy serves it below a path of its own.
 */
export function wayToRoot(url: string): string {
  const path = url.split('?', 1)[0] as string
  const depth = path.split('/').length - 2
  return depth > 0 ? '../'.repeat(depth) : './'
}
