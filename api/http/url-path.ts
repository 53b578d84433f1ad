/** The path of a request's address, without its query. */
export function pathOf(url: string): string {
  return url.split('?', 1)[0] as string
}

/** The first segment of that path, by which it is told whose it is; undefined at the root. */
export function firstSegmentOf(url: string): string | undefined {
  return pathOf(url)
    .split('/')
    .find((part) => part !== '')
}
