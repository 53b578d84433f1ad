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
