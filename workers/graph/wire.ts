/** A field of a protocol buffer message. Offsets are relative to the message's source. */
export interface Field {
  readonly number: number
  /** The offset of its tag. */
  readonly from: number
  readonly start: number
  /** The first byte after it. */
  readonly end: number
  readonly form: number
  /** The number of a varint field. */
  readonly value: bigint
}

/** Forms of a field. */
export const FORMS = { varint: 0, eightBytes: 1, withLength: 2, fourBytes: 5 } as const

/** Bytes that hold the tag and the length or number of any field. */
export const HEADER_BYTES_MAX = 20

/**
 * The field whose tag begins at `at` in `bytes`, which may end after the header; undefined when
 * there is none that ends within `limit`. `base` is the offset of `bytes` in the source.
 */
export function readField(
  bytes: Uint8Array,
  at: number,
  { base = 0, limit }: { readonly base?: number; readonly limit: number },
): Field | undefined {
  const tag = readVarint(bytes, at)
  if (tag === undefined) return undefined
  const number = Number(tag.value >> 3n)
  const form = Number(tag.value & 7n)
  const body = base + tag.end
  const make = (start: number, end: number, value = 0n): Field | undefined =>
    number > 0 && end <= limit ? { number, form, from: base + at, start, end, value } : undefined
  if (form === FORMS.eightBytes) return make(body, body + 8)
  if (form === FORMS.fourBytes) return make(body, body + 4)
  const varint = readVarint(bytes, tag.end)
  if (varint === undefined) return undefined
  const end = base + varint.end
  if (form === FORMS.varint) return make(body, end, varint.value)
  return form === FORMS.withLength ? make(end, end + Number(varint.value)) : undefined
}

/** The fields of a message in memory. Throws `RangeError` when it is malformed. */
export function* fieldsOf(bytes: Uint8Array): Generator<Field & { readonly body: Uint8Array }> {
  for (let at = 0; at < bytes.length; ) {
    const field = readField(bytes, at, { limit: bytes.length })
    if (field === undefined) throw new RangeError(`a field is broken at byte ${at} of its message`)
    yield { ...field, body: bytes.subarray(field.start, field.end) }
    at = field.end
  }
}

/** The numbers of a repeated varint field, which may be packed into one field. */
export function* varintsOf(field: Field & { readonly body: Uint8Array }): Generator<bigint> {
  if (field.form === FORMS.varint) {
    yield field.value
    return
  }
  for (let at = 0; at < field.body.length; ) {
    const varint = readVarint(field.body, at)
    if (varint === undefined) throw new RangeError('a list of numbers is broken off')
    yield varint.value
    at = varint.end
  }
}

/** A 64-bit number read as signed. */
export function signed(value: bigint): bigint {
  return BigInt.asIntN(64, value)
}

/** A field with a length: a string, bytes or a message given by its parts. */
export function field(
  number: number,
  content: string | Uint8Array | readonly Uint8Array[],
): Uint8Array {
  const bytes =
    typeof content === 'string'
      ? Buffer.from(content)
      : content instanceof Uint8Array
        ? content
        : Buffer.concat(content)
  return Buffer.concat([
    varint(BigInt(number * 8 + FORMS.withLength)),
    varint(BigInt(bytes.length)),
    bytes,
  ])
}

/** A varint field. Negative numbers take ten bytes. */
export function numberField(number: number, value: number | bigint): Uint8Array {
  const tag = varint(BigInt(number * 8 + FORMS.varint))
  return Buffer.concat([tag, varint(BigInt.asUintN(64, BigInt(value)))])
}

/** A field of a 32-bit floating-point number. */
export function floatField(number: number, value: number): Uint8Array {
  const bytes = Buffer.alloc(4)
  bytes.writeFloatLE(value)
  return Buffer.concat([varint(BigInt(number * 8 + FORMS.fourBytes)), bytes])
}

/** Seven bits a byte, the lowest first; the highest bit says that more follow. */
function readVarint(bytes: Uint8Array, from: number): { value: bigint; end: number } | undefined {
  let low = 0
  let high = 0n
  for (let at = from; at < Math.min(from + 10, bytes.length); at += 1) {
    const byte = bytes[at] as number
    const shift = 7 * (at - from)
    if (shift < 28) low += (byte & 0x7f) * 2 ** shift
    else high |= BigInt(byte & 0x7f) << BigInt(shift)
    if (byte < 0x80) return { value: BigInt.asUintN(64, high | BigInt(low)), end: at + 1 }
  }
  return undefined
}

function varint(value: bigint): Uint8Array {
  const bytes: number[] = []
  let rest = value
  for (; rest >= 128n; rest >>= 7n) bytes.push(Number(rest & 127n) + 128)
  return Uint8Array.from([...bytes, Number(rest)])
}
