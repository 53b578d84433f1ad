import type { FileHandle } from 'node:fs/promises'

/** A stretch of a file; `end` is the first byte after it. */
export interface ByteRange {
  readonly start: number
  readonly end: number
}

const WINDOW_BYTES = 64 * 1024
const FIELDS_MAX = 100_000 // ten times those of a large decoder
const HEADER_BYTES_MAX = 20 // tag and length, ten bytes each at most
// Field numbers of onnx.proto.
const MODEL_GRAPH = 7
const GRAPH_INITIALIZER = 5
// Forms of a field in protocol buffers.
const VARINT = 0
const EIGHT_BYTES = 1
const WITH_LENGTH = 2
const FOUR_BYTES = 5

interface Field extends ByteRange {
  readonly number: number
  /** Where its tag begins. */
  readonly from: number
}

/**
 * The ranges of an ONNX file that are not weights: a few hundred kilobytes of a file of gigabytes.
 * Undefined for another format, or for a file with too many fields.
 */
export async function findGraphText(
  handle: FileHandle,
  size: number,
): Promise<readonly ByteRange[] | undefined> {
  const window = new Window(handle)
  const found: { start: number; end: number }[] = []
  const add = ({ from, end }: Field): void => {
    const last = found.at(-1)
    if (last?.end === from) last.end = end
    else found.push({ start: from, end })
  }
  let numFields = 0
  const next = (at: number, limit: number): Promise<Field | undefined> | undefined => {
    numFields += 1
    return numFields > FIELDS_MAX ? undefined : readField(window, at, limit)
  }
  for (let at = 0; at < size; ) {
    const field = await next(at, size)
    if (field === undefined) return undefined
    at = field.end
    if (field.number !== MODEL_GRAPH) {
      add(field)
      continue
    }
    for (let inner = field.start; inner < field.end; ) {
      const part = await next(inner, field.end)
      if (part === undefined) return undefined
      inner = part.end
      if (part.number !== GRAPH_INITIALIZER) add(part)
    }
  }
  return found
}

/** The field that begins at a place; undefined when there is none that ends within `limit`. */
async function readField(window: Window, from: number, limit: number): Promise<Field | undefined> {
  const head = await window.read(from, Math.min(HEADER_BYTES_MAX, limit - from))
  const tag = readVarint(head, 0)
  if (tag === undefined) return undefined
  const number = Math.floor(tag.value / 8)
  const start = from + tag.end
  const toEnd = (end: number): Field | undefined =>
    number > 0 && end <= limit ? { number, from, start, end } : undefined
  switch (tag.value % 8) {
    case EIGHT_BYTES:
      return toEnd(start + 8)
    case FOUR_BYTES:
      return toEnd(start + 4)
    case VARINT: {
      const value = readVarint(head, tag.end)
      return value && toEnd(from + value.end)
    }
    case WITH_LENGTH: {
      const length = readVarint(head, tag.end)
      if (length === undefined) return undefined
      const bodyStart = from + length.end
      const field = toEnd(bodyStart + length.value)
      return field && { ...field, start: bodyStart }
    }
    default:
      return undefined
  }
}

/** Seven bits a byte, the lowest first; the highest bit says that more follow. */
function readVarint(bytes: Buffer, from: number): { value: number; end: number } | undefined {
  let value = 0
  for (let at = from; at < Math.min(from + 10, bytes.length); at += 1) {
    const byte = bytes[at] as number
    value += (byte & 0x7f) * 2 ** (7 * (at - from))
    if (byte < 0x80) return { value, end: at + 1 }
  }
  return undefined
}

/** Reads small pieces that mostly follow one another, many at a time. */
class Window {
  readonly #handle: FileHandle
  readonly #buffer = Buffer.alloc(WINDOW_BYTES)
  #start = 0
  #length = 0

  constructor(handle: FileHandle) {
    this.#handle = handle
  }

  /** Valid until the next read; shorter at the end of the file. */
  async read(start: number, length: number): Promise<Buffer> {
    const isHere = start >= this.#start && start + length <= this.#start + this.#length
    if (!isHere) {
      const { bytesRead } = await this.#handle.read(this.#buffer, 0, WINDOW_BYTES, start)
      this.#start = start
      this.#length = bytesRead
    }
    const at = start - this.#start
    return this.#buffer.subarray(at, Math.min(at + length, this.#length))
  }
}
