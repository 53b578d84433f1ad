/**
 * The one range of a `Range` header (RFC 9110, section 14.1.2), or undefined when the whole is to be
 * sent: no header, several ranges, or one that cannot be satisfied.
 */
export function parseRange(
  header: string | undefined,
  size: number,
): { start: number; end: number } | undefined {
  const match = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header ?? '')
  if (match === null || size === 0) return undefined
  const [, from = '', to = ''] = match
  if (from === '' && to === '') return undefined
  // The last no bytes are none.
  if (from === '' && Number(to) === 0) return undefined
  if (from === '') return { start: Math.max(0, size - Number(to)), end: size - 1 }
  const start = Number(from)
  const end = to === '' ? size - 1 : Math.min(Number(to), size - 1)
  return start <= end && start < size ? { start, end } : undefined
}
