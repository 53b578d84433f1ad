const NEWLINE = 0x0a
const BYTE_ORDER_MARK = '\ufeff'

/** A line exceeds the limit of its reader. */
export class LineTooLongError extends Error {
  constructor(bytesMax: number) {
    super(`a line is longer than ${bytesMax} bytes`)
    this.name = 'LineTooLongError'
  }
}

/**
 * The lines of a byte stream, without line ends and without a leading byte order mark. Only
 * newlines separate lines, because JSON may contain every other separator. Throws
 * `LineTooLongError`, or the error of the stream.
 */
export async function* readLines(
  source: AsyncIterable<Uint8Array>,
  bytesMax: number,
): AsyncGenerator<string> {
  let pending: Buffer[] = []
  let pendingBytes = 0
  let isFirst = true
  const keep = (bytes: Buffer): void => {
    pendingBytes += bytes.length
    if (pendingBytes > bytesMax) throw new LineTooLongError(bytesMax)
    pending.push(bytes)
  }
  const take = (): string => {
    const line = Buffer.concat(pending).toString('utf8')
    const start = isFirst && line.startsWith(BYTE_ORDER_MARK) ? 1 : 0
    pending = []
    pendingBytes = 0
    isFirst = false
    return line.slice(start)
  }
  for await (const part of source) {
    const chunk = Buffer.from(part.buffer, part.byteOffset, part.byteLength)
    let start = 0
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      keep(chunk.subarray(start, end))
      start = end + 1
      yield take()
    }
    if (start < chunk.length) keep(chunk.subarray(start))
  }
  if (pendingBytes > 0) yield take()
}
