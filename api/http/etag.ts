/** Whether `If-None-Match` contains this entity tag. */
export function isKnown(ifNoneMatch: string | undefined, etag: string): boolean {
  const known = ifNoneMatch?.split(',').map((tag) => tag.trim()) ?? []
  return known.some((tag) => tag === '*' || tag.replace(/^W\//, '') === etag)
}
