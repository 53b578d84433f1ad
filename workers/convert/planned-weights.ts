import type { DataFile } from '#workers/graph/data-file.ts'
import { storedBytes } from '#workers/graph/data-file.ts'
import type { Constant } from '#workers/graph/model.ts'
import { countElements, ELEMENT_TYPES } from '#workers/tensor/element-type.ts'
import { narrowFloats } from '#workers/tensor/float-types.ts'

import type { Checkpoint } from './checkpoint.ts'
import { blocksOf, quantizeRows } from './quantize-blocks.ts'
import { BLOCK_SIZE } from './weight-forms.ts'

type FloatType = 'float32' | 'float16'

/** A tensor of a checkpoint and the shape that it must have. */
interface Source {
  readonly name: string
  readonly dims: readonly number[]
}

/** Constants of a graph that are written later, in order. */
export interface PlannedWeights {
  /** Undefined for weights that are derived from config.json. */
  readonly source: Source | undefined
  /** Room in the file of weights. */
  readonly bytes: number
  write(checkpoint: Checkpoint, data: DataFile): Promise<readonly Constant[]>
}

/** Elements that are read at a time: 16 MB in 32 bits. */
const PIECE_ELEMENTS = 1 << 22

/**
 * The most elements of a range of columns, for which all rows are read: 128 MB hold most matrices.
 */
const COLUMN_ELEMENTS = 1 << 25

/** A tensor in its own layout, with `change` applied to its elements. */
export function planTensor(
  source: Source,
  { name, type, change }: { name: string; type: FloatType; change?: (value: number) => number },
): PlannedWeights {
  const { dims } = source
  return {
    source,
    bytes: storedBytes(countElements(dims) * ELEMENT_TYPES[type].bytes),
    async write(checkpoint, data) {
      const pieces = readRows(checkpoint, source, (values) =>
        narrowFloats(change === undefined ? values : values.map(change), type),
      )
      return [await data.append({ name, onnxType: ELEMENT_TYPES[type].onnxType, dims }, pieces)]
    },
  }
}

/** A matrix of [out, in] as [in, out]. */
export function planTransposed(
  source: Source,
  { name, type }: { name: string; type: FloatType },
): PlannedWeights {
  const [outSize = 1, inSize = 1] = source.dims
  const { onnxType, bytes } = ELEMENT_TYPES[type]
  return {
    source,
    bytes: storedBytes(outSize * inSize * bytes),
    async write(checkpoint, data) {
      const pieces = readColumns(checkpoint, source, type)
      return [await data.append({ name, onnxType, dims: [inSize, outSize] }, pieces)]
    },
  }
}

/** Names of quantized constants. A table has the same bytes in the shape of embeddings. */
interface BlockNames {
  readonly codes: string
  readonly scales: string
  readonly table?: { readonly codes: string; readonly scales: string }
}

/** A matrix of [out, in] in blocks, whose rows are quantized while they are read. */
export function planBlocks(
  source: Source,
  { names, bits }: { names: BlockNames; bits: 4 | 8 },
): PlannedWeights {
  const [outSize = 1, inSize = 1] = source.dims
  const blocks = blocksOf(inSize)
  const blockBytes = (BLOCK_SIZE * bits) / 8
  const { uint8, float32 } = ELEMENT_TYPES
  return {
    source,
    bytes: storedBytes(outSize * blocks * blockBytes) + storedBytes(outSize * blocks * 4),
    async write(checkpoint, data) {
      const scales = new Float32Array(outSize * blocks)
      let row = 0
      const pieces = readRows(checkpoint, source, (values) => {
        const rows = quantizeRows(values, inSize, bits)
        scales.set(rows.scales, row * blocks)
        row += values.length / inSize
        return rows.codes
      })
      const { onnxType } = uint8
      const dims = [outSize, blocks, blockBytes]
      const codes = await data.append({ name: names.codes, onnxType, dims }, pieces)
      const shape = { name: names.scales, onnxType: float32.onnxType, dims: [outSize * blocks] }
      const stored = await data.append(shape, [narrowFloats(scales, 'float32')])
      if (names.table === undefined) return [codes, stored]
      return [
        codes,
        stored,
        { ...codes, name: names.table.codes, dims: [outSize, inSize] },
        { ...stored, name: names.table.scales, dims: [outSize, blocks] },
      ]
    },
  }
}

/** A table that is computed, piece by piece. */
export function planComputed(
  { name, dims, type }: { name: string; dims: readonly number[]; type: FloatType },
  compute: () => Iterable<Float32Array>,
): PlannedWeights {
  const { onnxType, bytes } = ELEMENT_TYPES[type]
  return {
    source: undefined,
    bytes: storedBytes(countElements(dims) * bytes),
    async write(_checkpoint, data) {
      return [await data.append({ name, onnxType, dims }, narrowed(compute(), type))]
    },
  }
}

function* narrowed(pieces: Iterable<Float32Array>, type: FloatType): Generator<Uint8Array> {
  for (const piece of pieces) yield narrowFloats(piece, type)
}

/** Complete rows of a tensor, several at a time, transformed by `change`. */
async function* readRows<Piece>(
  checkpoint: Checkpoint,
  { name, dims }: Source,
  change: (values: Float32Array) => Piece,
): AsyncGenerator<Piece> {
  const width = dims.at(-1) ?? 1
  const total = countElements(dims)
  const size = Math.max(1, Math.floor(PIECE_ELEMENTS / width)) * width
  for (let first = 0; first < total; first += size) {
    yield change(await checkpoint.read(name, { first, count: Math.min(size, total - first) }))
  }
}

/** The columns of a matrix, one after another. All rows are read for each range. */
async function* readColumns(
  checkpoint: Checkpoint,
  source: Source,
  type: FloatType,
): AsyncGenerator<Uint8Array> {
  const [outSize = 1, inSize = 1] = source.dims
  const columnsMax = Math.max(1, Math.floor(COLUMN_ELEMENTS / outSize))
  for (let first = 0; first < inSize; first += columnsMax) {
    const columns = Math.min(columnsMax, inSize - first)
    const piece = new Float32Array(columns * outSize)
    let row = 0
    for await (const values of readRows(checkpoint, source, (rows) => rows)) {
      for (let from = first; from < values.length; from += inSize) {
        for (let column = 0; column < columns; column += 1) {
          piece[column * outSize + row] = values[from + column] as number
        }
        row += 1
      }
    }
    yield narrowFloats(piece, type)
  }
}
