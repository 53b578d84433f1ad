/** Element types of weights in safetensors files. */
export type StoredType = 'F32' | 'F16' | 'BF16'

interface TypeRow {
  readonly bytes: number
  /** The elements as 32-bit numbers; may be a view of the same memory. */
  readonly widen: (bytes: ArrayBuffer) => Float32Array
  readonly narrow: (values: Float32Array) => Uint8Array
}

/** Converts each type to and from 32 bits. */
export const FLOAT_TYPES: Readonly<Record<StoredType, TypeRow>> = {
  F32: {
    bytes: 4,
    widen: (bytes) => new Float32Array(bytes),
    narrow: (values) => bytesOf(values),
  },
  F16: {
    bytes: 2,
    widen: (bytes) => Float32Array.from(new Float16Array(bytes)),
    narrow: (values) => bytesOf(Float16Array.from(values)),
  },
  // The upper half of a float32.
  BF16: {
    bytes: 2,
    widen(bytes) {
      const halves = new Uint16Array(bytes)
      const wide = new Uint32Array(halves.length)
      for (let at = 0; at < halves.length; at += 1) wide[at] = (halves[at] as number) << 16
      return new Float32Array(wide.buffer)
    },
    narrow: (values) => {
      const bits = new Uint32Array(values.buffer, values.byteOffset, values.length)
      return bytesOf(Uint16Array.from(bits, roundToUpperHalf))
    },
  },
}

/** The bytes of numbers in the precision of a graph. */
export function narrowFloats(values: Float32Array, type: 'float32' | 'float16'): Uint8Array {
  return FLOAT_TYPES[type === 'float16' ? 'F16' : 'F32'].narrow(values)
}

/** Whether elements of this type can be widened. */
export function isFloatType(type: string): type is StoredType {
  return Object.hasOwn(FLOAT_TYPES, type)
}

/** Rounds to the nearest upper half, ties to even. NaN stays NaN. */
function roundToUpperHalf(bits: number): number {
  if ((bits & 0x7fff_ffff) > 0x7f80_0000) return (bits >>> 16) | 0x40
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16
}

function bytesOf({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength)
}
