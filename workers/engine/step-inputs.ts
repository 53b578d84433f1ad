import type { Runtime } from '#workers/runtime/runtime.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'

import type { DecoderGraph } from './decoder-graph.ts'
import type { Sequence } from './slots.ts'
import type { TokenEmbedder } from './token-embedder.ts'
import type { PromptPositions } from './types.ts'

/** A row of a run: its text, and the position of its first column. */
interface StepRow {
  readonly first: number
  /** Undefined for a row whose result is not read. */
  readonly sequence?: Sequence | undefined
}

/** The tokens of a run, row after row. */
export interface StepTokens {
  readonly rows: readonly StepRow[]
  readonly ids: BigInt64Array
  readonly mask: BigInt64Array
}

/** Lays out the inputs of a run that depend on its tokens. */
export class StepInputs {
  readonly #runtime: Runtime
  readonly #graph: DecoderGraph
  readonly #embedder: TokenEmbedder | undefined

  constructor(runtime: Runtime, graph: DecoderGraph, embedder: TokenEmbedder | undefined) {
    this.#runtime = runtime
    this.#graph = graph
    this.#embedder = embedder
  }

  /** The inputs by name, which the caller disposes of. */
  async lay(tokens: StepTokens): Promise<Record<string, Tensor>> {
    const { hasAttentionMask, hasPositionIds } = this.#graph
    const { rows, mask } = tokens
    const count = rows.length
    return {
      // Computed first, because only this may fail.
      ...(await this.#layTokens(tokens)),
      ...(hasAttentionMask && {
        attention_mask: this.#runtime.tensor('int64', mask, [count, mask.length / count]),
      }),
      ...(hasPositionIds && { position_ids: this.#layPositions(tokens) }),
    }
  }

  async #layTokens({ rows, ids }: StepTokens): Promise<Record<string, Tensor>> {
    if (this.#embedder === undefined) {
      const dims = [rows.length, ids.length / rows.length]
      return { input_ids: this.#runtime.tensor('int64', ids, dims) }
    }
    const parts = rows.map(({ first, sequence }) => {
      return { first, spans: sequence?.request.embedded ?? [] }
    })
    return this.#embedder.embed(ids, parts)
  }

  #layPositions({ rows, ids }: StepTokens): Tensor {
    const columns = ids.length / rows.length
    const axes = this.#graph.positionAxes
    const values = new BigInt64Array(axes * ids.length)
    for (let axis = 0; axis < axes; axis += 1) {
      for (const [row, { first, sequence }] of rows.entries()) {
        const positions = axes === 1 ? undefined : sequence?.request.positions
        const start = (axis * rows.length + row) * columns
        for (let column = 0; column < columns; column += 1) {
          values[start + column] = BigInt(positionOf(positions, axis, first + column))
        }
      }
    }
    const dims = [rows.length, columns]
    return this.#runtime.tensor('int64', values, axes === 1 ? dims : [axes, ...dims])
  }
}

function positionOf(positions: PromptPositions | undefined, axis: number, at: number): number {
  if (positions === undefined) return at
  const known = positions.axes[axis] ?? []
  return known[at] ?? positions.next + at - known.length
}
