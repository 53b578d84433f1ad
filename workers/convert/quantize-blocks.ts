import { BLOCK_SIZE } from './weight-forms.ts'

/** Rows of a matrix in blocks, in the layout of MatMulNBits. */
interface QuantizedRows {
  /** For each row its blocks, for each block its elements; 4-bit elements are packed in pairs. */
  readonly codes: Uint8Array
  /** A scale for each block: weight = (code − half of the codes) · scale. */
  readonly scales: Float32Array
}

/** Blocks of a row; the last is filled with zeros. */
export function blocksOf(width: number): number {
  return Math.ceil(width / BLOCK_SIZE)
}

/** Candidate scales, given as the code of the block's extreme. */
const EXTREMES: Readonly<Record<4 | 8, readonly number[]>> = {
  4: [-8, -7.6, -7.2, -6.8, -8.5, -9],
  // With 256 codes the first candidate is nearly the best.
  8: [-128],
}

/**
 * Quantizes rows symmetrically in blocks. Several scales are tried, each refitted to its codes by
 * least squares; a block uses the one with the smallest squared error.
 */
export function quantizeRows(values: Float32Array, width: number, bits: 4 | 8): QuantizedRows {
  const blocks = blocksOf(width)
  const rows = values.length / width
  const codes = new Uint8Array((rows * blocks * BLOCK_SIZE * bits) / 8)
  const scales = new Float32Array(rows * blocks)
  const quantizer = new BlockQuantizer(bits)
  for (let index = 0; index < rows * blocks; index += 1) {
    const row = Math.floor(index / blocks)
    const from = row * width + (index % blocks) * BLOCK_SIZE
    scales[index] = quantizer.quantize(
      values.subarray(from, Math.min(from + BLOCK_SIZE, (row + 1) * width)),
    )
    quantizer.pack(codes, (index * BLOCK_SIZE * bits) / 8)
  }
  return { codes, scales }
}

/** Quantizes one block after another, reusing its memory. */
class BlockQuantizer {
  readonly #bits: 4 | 8
  readonly #half: number
  readonly #block = new Float32Array(BLOCK_SIZE)
  /** Signed codes of the best scale so far, and of the current candidate. */
  readonly #best = new Int16Array(BLOCK_SIZE)
  readonly #codes = new Int16Array(BLOCK_SIZE)

  constructor(bits: 4 | 8) {
    this.#bits = bits
    this.#half = 2 ** (bits - 1)
  }

  /** Finds the codes of a block and returns its scale. */
  quantize(values: Float32Array): number {
    this.#block.fill(0)
    this.#block.set(values)
    this.#best.fill(0)
    const extreme = this.#extreme()
    // A block of zeros, or of numbers too small to divide by, has the scale 0.
    if (!Number.isFinite(1 / Math.fround(extreme / -this.#half))) return 0
    let bestScale = 0
    let bestError = Infinity
    for (const code of EXTREMES[this.#bits]) {
      const scale = this.#fit(extreme / code)
      const error = this.#errorOf(scale)
      if (error >= bestError) continue
      bestError = error
      bestScale = scale
      this.#best.set(this.#codes)
    }
    return bestScale
  }

  /** Stores the codes as unsigned; the first of two in a byte is the lower half. */
  pack(codes: Uint8Array, from: number): void {
    const best = this.#best
    if (this.#bits === 8) {
      for (let at = 0; at < BLOCK_SIZE; at += 1) codes[from + at] = (best[at] as number) + 128
      return
    }
    for (let at = 0; at < BLOCK_SIZE; at += 2) {
      const low = (best[at] as number) + 8
      codes[from + at / 2] = low + 16 * ((best[at + 1] as number) + 8)
    }
  }

  #extreme(): number {
    let extreme = 0
    for (let at = 0; at < BLOCK_SIZE; at += 1) {
      const value = this.#block[at] as number
      if (Math.abs(value) > Math.abs(extreme)) extreme = value
    }
    return extreme
  }

  /** Rounds the block to the codes of a scale, and returns the scale that fits these codes best. */
  #fit(scale: number): number {
    const inverse = 1 / scale
    const half = this.#half
    let products = 0
    let squares = 0
    for (let at = 0; at < BLOCK_SIZE; at += 1) {
      const value = this.#block[at] as number
      const code = Math.min(Math.max(Math.round(value * inverse), -half), half - 1)
      this.#codes[at] = code
      products += value * code
      squares += code * code
    }
    return Math.fround(squares === 0 ? scale : products / squares)
  }

  #errorOf(scale: number): number {
    let error = 0
    for (let at = 0; at < BLOCK_SIZE; at += 1) {
      const difference = (this.#block[at] as number) - (this.#codes[at] as number) * scale
      error += difference * difference
    }
    return error
  }
}
