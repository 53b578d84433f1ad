import { int } from '#workers/graph/model.ts'

import type { DecoderShape } from './decoder-shape.ts'
import type { DecoderWriter } from './decoder-writer.ts'
import { planComputed } from './planned-weights.ts'
import { type Rotation, rotationTable, tableRows } from './rotary.ts'

/** GroupQueryAttention rotates heads whose size is a multiple of this. */
const ROTATED_HEAD_STEP = 16

/** Tensors that all layers share: lengths of rows, and the rotations of positions. */
export class Positions {
  readonly #writer: DecoderWriter
  readonly #shape: DecoderShape
  readonly #tables = new Map<Rotation, readonly [string, string]>()
  #hasLengths = false
  #rows: string | undefined
  /** Whether the graph reads `position_ids`. */
  areRead = false

  constructor(writer: DecoderWriter, shape: DecoderShape) {
    this.#writer = writer
    this.#shape = shape
  }

  /**
   * The index of each row's last position, and the width of the mask, which is padded on the right.
   */
  lengths(): readonly [string, string] {
    const writer = this.#writer
    const names = ['seqlens_k', 'total_sequence_length_32'] as const
    if (this.#hasLengths) return names
    this.#hasLengths = true
    const toInt32 = { attributes: { to: int(6) } }
    const one = writer.integers(1)
    const sums = { attributes: { keepdims: int(0) } }
    writer.add('ReduceSum', ['attention_mask', one], 'mask_sum', sums)
    writer.add('Sub', ['mask_sum', one], 'last_position')
    writer.add('Cast', ['last_position'], names[0], toInt32)
    writer.add('Shape', ['attention_mask'], 'mask_shape')
    writer.add('Gather', ['mask_shape', one], 'total_length')
    writer.add('Cast', ['total_length'], names[1], toInt32)
    return names
  }

  /** The first position whose logits are returned: 0 keeps all positions. */
  firstKept(): string {
    const writer = this.#writer
    const flat = ['num_logits_to_keep', writer.integers(-1)]
    return writer.add('Neg', [writer.add('Reshape', flat, 'num_kept')], 'first_kept')
  }

  /** Query and key, rotated here if the attention cannot use the tables. */
  rotate(
    rotation: Rotation,
    module: string,
    { query, key }: { readonly query: string; readonly key: string },
  ): { readonly query: string; readonly key: string; readonly tables: readonly string[] } {
    const { numHeads, numCacheHeads, headDim } = this.#shape
    const tables = this.#tablesOf(rotation)
    const isInside = headDim % ROTATED_HEAD_STEP === 0 && rotation.long === undefined
    if (isInside) return { query, key, tables }
    const positions = this.#positionsOf(rotation)
    const turn = (tensor: string, name: string, heads: number): string =>
      this.#writer.add(
        'RotaryEmbedding',
        [tensor, positions, ...tables],
        `${module}/${name}_turned`,
        {
          domain: 'com.microsoft',
          attributes: {
            num_heads: int(heads),
            ...(rotation.width < headDim && { rotary_embedding_dim: int(rotation.width) }),
          },
        },
      )
    return {
      query: turn(query, 'query', numHeads),
      key: turn(key, 'key', numCacheHeads),
      tables: [],
    }
  }

  /** Rows of the tables: those of long texts follow those of short ones. */
  #positionsOf({ long }: Rotation): string {
    const writer = this.#writer
    this.areRead = true
    if (long === undefined) return 'position_ids'
    if (this.#rows !== undefined) return this.#rows
    this.lengths()
    const from = writer.integers(long.from)
    writer.add('Greater', ['total_length', from], 'is_long')
    writer.add('Where', ['is_long', from, writer.integers(0)], 'first_row')
    this.#rows = writer.add('Add', ['position_ids', 'first_row'], 'position_rows')
    return this.#rows
  }

  #tablesOf(rotation: Rotation): readonly [string, string] {
    const known = this.#tables.get(rotation)
    if (known !== undefined) return known
    const number = this.#tables.size
    const names = [`cos_cache_${number}`, `sin_cache_${number}`] as const
    this.#tables.set(rotation, names)
    const { positions } = this.#shape
    const dims = [tableRows(rotation, positions), rotation.frequencies.length]
    const { type } = this.#writer.form
    for (const [index, of] of [Math.cos, Math.sin].entries()) {
      const shape = { name: names[index] as string, dims, type }
      const pieces = () => rotationTable(rotation, { positions, of })
      this.#writer.weights.push(planComputed(shape, pieces))
    }
    return names
  }
}
