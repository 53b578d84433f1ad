/** An array of single precision. */
interface FloatArray {
  readonly shape: readonly number[]
  readonly values: Float32Array
}

const MAGIC = Buffer.from('\x93NUMPY', 'latin1')
/** The longest header that NumPy itself reads. */
const HEADER_BYTES_MAX = 10_000
const FLOAT_BYTES = 4

/**
 * A NumPy array file with little-endian floats in C order. Throws for other types, including Python
 * objects, and for a shape that does not match its elements.
 */
export function readNpy(bytes: Buffer): FloatArray {
  const { header, start } = headerOf(bytes)
  const type = /'descr': *'([^']*)'/.exec(header)?.[1]
  if (type !== '<f4') throw new Error(`its elements are ${type ?? 'records'}, expected <f4`)
  if (!/'fortran_order': *False/.test(header)) throw new Error('it is not in C order')
  const shape = shapeOf(header)
  const length = shape.reduce((product, size) => product * size, 1)
  if (length * FLOAT_BYTES !== bytes.length - start) {
    throw new Error(`${bytes.length - start} bytes are not an array of shape (${shape.join(', ')})`)
  }
  return { shape, values: floatsOf(bytes.subarray(start)) }
}

/** A copy, because the bytes may have any alignment. */
export function floatsOf(bytes: Uint8Array): Float32Array {
  return new Float32Array(Uint8Array.from(bytes).buffer)
}

/** The Python dictionary before the elements, and where they start. */
function headerOf(bytes: Buffer): { readonly header: string; readonly start: number } {
  const version = bytes[MAGIC.length] ?? 0
  if (bytes.length < 12 || !bytes.subarray(0, MAGIC.length).equals(MAGIC) || version > 3) {
    throw new Error('it is not an array file of NumPy')
  }
  const length = version === 1 ? bytes.readUInt16LE(8) : bytes.readUInt32LE(8)
  const begin = version === 1 ? 10 : 12
  if (length > HEADER_BYTES_MAX || begin + length > bytes.length) {
    throw new Error(`its header of ${length} bytes is too long`)
  }
  return { header: bytes.toString('latin1', begin, begin + length), start: begin + length }
}

function shapeOf(header: string): readonly number[] {
  const sizes = /'shape': *\(([\d, ]{0,100})\)/.exec(header)?.[1]
  if (sizes === undefined) throw new Error('it has no shape')
  return sizes
    .split(',')
    .filter((size) => size.trim() !== '')
    .map(Number)
}
