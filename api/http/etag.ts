/** Whether a client that sends `If-None-Match` has what this tag stands for. */
export function isKnown(ifNoneMatch: string | undefined, etag: string): boolean {
  const known = ifNoneMatch?.split(',').map((tag) => tag.trim()) ?? []
  return known.some((tag) => tag === '*' || tag.replace(/^W\//, '') === etag)
}
