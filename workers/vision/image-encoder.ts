import { defined } from '#shared/json.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'
import { allocateElements } from '#workers/tensor/element-type.ts'

import type { PixelValues } from './pixel-values.ts'

/** Tiles in one run; more take memory and block other runs. */
const TILES_PER_RUN = 4

/** Names of the input with rows and columns of patches. */
const GRID_NAMES = ['image_grid_thw', 'grid_thw']

/** The output of an encoder for an image. */
interface EncoderShape {
  /** Elements of an embedding; any number if undefined. */
  readonly size: number | undefined
  /** The first output is used if there is none of this name. */
  readonly outputName?: string
  /** Converts the output of each run, which has a first axis for its images. */
  readonly reduce?: (values: Float32Array, dims: readonly number[]) => Float32Array
}

/**
 * Runs the graph `vision_encoder`, whose inputs determine its format: tiles `[n, 3, height,
 * width]`, tiles of one text `[1, n, 3, height, width]` with a mask of their pixels, or patches
 * with their grid.
 */
export class ImageEncoder {
  readonly #runtime: Runtime
  readonly #session: ModelSession
  readonly #rank: number
  readonly #output: string
  readonly #type: 'float32' | 'float16'
  readonly #size: number | undefined
  readonly #reduce: EncoderShape['reduce']

  /** Throws `ModelLoadError` for a graph with other inputs or embeddings. */
  constructor(
    runtime: Runtime,
    session: ModelSession,
    { size, outputName = 'image_features', reduce }: EncoderShape,
  ) {
    const { file, inputs, outputs } = session
    const known = ['pixel_values', 'pixel_attention_mask', ...GRID_NAMES]
    const unknown = inputs.find(({ name }) => !known.includes(name))
    const pixels = inputs.find(({ name }) => name === 'pixel_values')
    const output = outputs.find(({ name }) => name === outputName) ?? outputs[0]
    const isFloat = pixels?.type === 'float32' || pixels?.type === 'float16'
    if (unknown !== undefined || pixels === undefined || !isFloat || output === undefined) {
      throw new ModelLoadError(
        file,
        `not an image encoder: its only inputs must be ${known.join(', ')}`,
      )
    }
    const deep = outputs.find(({ name }) => name.startsWith('deepstack'))
    if (deep !== undefined) {
      throw new ModelLoadError(file, `no layer of the decoder reads its output ${deep.name}`)
    }
    this.#runtime = runtime
    this.#session = session
    this.#rank = pixels.dims.length
    this.#type = pixels.type as 'float32' | 'float16'
    this.#output = output.name
    this.#size = size
    this.#reduce = reduce
  }

  /** The embeddings of an image, one after another. */
  async encode({ data, dims, grid = [1, 1] }: PixelValues): Promise<Float32Array> {
    if (this.#rank === 2) return this.#run(data, dims, grid)
    const [tiles = 1, ...rest] = dims
    const perTile = data.length / tiles
    const parts: Float32Array[] = []
    for (let first = 0; first < tiles; first += TILES_PER_RUN) {
      const count = Math.min(TILES_PER_RUN, tiles - first)
      const part = data.subarray(first * perTile, (first + count) * perTile)
      parts.push(await this.#run(part, [count, ...rest], grid))
    }
    const [only] = parts
    if (parts.length === 1 && only !== undefined) return only
    const joined = new Float32Array(parts.reduce((sum, { length }) => sum + length, 0))
    let at = 0
    for (const part of parts) {
      joined.set(part, at)
      at += part.length
    }
    return joined
  }

  close(): Promise<void> {
    return this.#session.close()
  }

  async #run(
    pixels: Float32Array,
    dims: readonly number[],
    grid: readonly number[],
  ): Promise<Float32Array> {
    const feeds: Record<string, Tensor> = {}
    try {
      feeds.pixel_values = this.#pixelTensor(pixels, dims)
      for (const { name } of this.#session.inputs) {
        if (name === 'pixel_attention_mask') feeds[name] = this.#maskTensor(dims)
        if (GRID_NAMES.includes(name)) feeds[name] = this.#gridTensor(grid)
      }
      const results = await this.#session.run(feeds, { [this.#output]: null })
      const output = defined(results[this.#output])
      try {
        if (this.#size !== undefined && output.dims.at(-1) !== this.#size) {
          throw new Error(`${this.#session.file}: embeddings of ${output.dims.at(-1)} elements`)
        }
        const values = Float32Array.from(output.data as Float32Array)
        return this.#reduce?.(values, output.dims) ?? values
      } finally {
        output.dispose()
      }
    } finally {
      for (const tensor of Object.values(feeds)) tensor.dispose()
    }
  }

  #pixelTensor(pixels: Float32Array, dims: readonly number[]): Tensor {
    const shape = this.#rank === 5 ? [1, ...dims] : dims
    const data = allocateElements(this.#type, pixels.length) as Float32Array
    data.set(pixels)
    return this.#runtime.tensor(this.#type, data, shape)
  }

  /** Tiles are complete: every pixel counts. */
  #maskTensor(dims: readonly number[]): Tensor {
    const [tiles = 1, , height = 1, width = 1] = dims
    const mask = new Uint8Array(tiles * height * width).fill(1)
    return this.#runtime.tensor('bool', mask, [1, tiles, height, width])
  }

  /** The grid of one image, as a single frame. */
  #gridTensor([rows = 1, columns = 1]: readonly number[]): Tensor {
    const grid = BigInt64Array.of(1n, BigInt(rows), BigInt(columns))
    return this.#runtime.tensor('int64', grid, [1, 3])
  }
}
