/** An inclusive byte range of a file. */
interface ByteRange {
  readonly start: number
  readonly end: number
}

/**
 * Parses a `Range` header with one range (RFC 9110, section 14.1.2). Undefined means that the whole
 * file is sent: no header, several ranges, or another unit. `unsatisfiable` means that no requested
 * byte exists.
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
  // A suffix range of an empty file covers the whole file.
  return size === 0 ? undefined : { start: Math.max(0, size - count), end: size - 1 }
}
