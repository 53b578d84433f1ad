/** Bytes of a file, from the first to the last. */
export interface ByteRange {
  readonly start: number
  readonly end: number
}

/**
 * The one range of a `Range` header (RFC 9110, section 14.1.2). Undefined when the whole is to be
 * sent: no header, several ranges, or what is no range of bytes; `unsatisfiable` when the file has
 * none of the bytes that are asked for.
 */
export function parseRange(
  header: string | undefined,
  size: number,
): ByteRange | 'unsatisfiable' | undefined {
  const match = /^bytes=(\d*)-(\d*)$/i.exec(header ?? '')
  if (match === null) return undefined
  const [, from = '', to = ''] = match
  if (from === '' && to === '') return undefined
  if (from === '') return lastBytes(Number(to), size)
  const start = Number(from)
  if (to !== '' && Number(to) < start) return undefined
  if (start >= size) return 'unsatisfiable'
  return { start, end: to === '' ? size - 1 : Math.min(Number(to), size - 1) }
}

function lastBytes(count: number, size: number): ByteRange | 'unsatisfiable' | undefined {
  if (count === 0) return 'unsatisfiable'
  // The last bytes of an empty file are the whole of it.
  return size === 0 ? undefined : { start: Math.max(0, size - count), end: size - 1 }
}
