import { defined } from '#shared/json.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { TensorSpec } from '#workers/runtime/specs.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'

import type { EmbeddingShape } from './decoder-graph.ts'
import type { EmbeddedSpan } from './types.ts'

/** The embedded parts of a row of a run, which starts at position `first` of its text. */
interface RowSpans {
  readonly first: number
  readonly spans: readonly EmbeddedSpan[]
}

/**
 * Computes the input of decoders that read embeddings: those of tokens with the graph
 * `embed_tokens`, and those of images for negative token ids.
 */
export class TokenEmbedder {
  readonly #runtime: Runtime
  readonly #session: ModelSession
  readonly #input: string
  readonly #output: string
  readonly #perLayer: string | undefined
  readonly #size: number

  /** Throws `ModelLoadError` for a graph whose embeddings do not fit the decoder. */
  constructor(runtime: Runtime, session: ModelSession, shape: EmbeddingShape) {
    const { inputs, outputs } = session
    const [input] = inputs
    const { perLayer } = shape
    const output = outputs.find(({ name }) => name !== perLayer?.name)
    const isFit = output?.dims.at(-1) === shape.size && output.type === shape.type
    if (input?.type !== 'int64' || output === undefined || !isFit) {
      throw new ModelLoadError(
        session.file,
        `it must make ${shape.type} embeddings of ${shape.size} elements from int64 token ids`,
      )
    }
    if (perLayer !== undefined && !outputs.some((made) => fits(made, perLayer))) {
      const shown = perLayer.dims.slice(2).join(', ')
      throw new ModelLoadError(
        session.file,
        `it must also make ${perLayer.name} of [batch, length, ${shown}], which the decoder reads`,
      )
    }
    this.#runtime = runtime
    this.#session = session
    this.#input = input.name
    this.#output = output.name
    this.#perLayer = perLayer?.name
    this.#size = shape.size
  }

  /**
   * The inputs of a decoder for rows of token ids, which the caller disposes of: `inputs_embeds` of
   * [rows, columns, size], and the embeddings of each layer, which images share with token 0.
   */
  async embed(ids: BigInt64Array, rows: readonly RowSpans[]): Promise<Record<string, Tensor>> {
    const columns = ids.length / rows.length
    const known = ids.some((id) => id < 0n) ? ids.map((id) => (id < 0n ? 0n : id)) : ids
    const tensor = this.#runtime.tensor('int64', known, [rows.length, columns])
    try {
      const perLayer = this.#perLayer
      const fetches = { [this.#output]: null, ...(perLayer && { [perLayer]: null }) }
      const results = await this.#session.run({ [this.#input]: tensor }, fetches)
      const embedded = defined(results[this.#output])
      for (const [row, spans] of rows.entries()) {
        this.#fill(embedded.data as Float32Array, row * columns, columns, spans)
      }
      return {
        inputs_embeds: embedded,
        ...(perLayer && { [perLayer]: defined(results[perLayer]) }),
      }
    } finally {
      tensor.dispose()
    }
  }

  close(): Promise<void> {
    return this.#session.close()
  }

  /** Copies the parts of images that are within a row. */
  #fill(target: Float32Array, offset: number, columns: number, { first, spans }: RowSpans): void {
    for (const { start, embeddings } of spans) {
      const length = embeddings.length / this.#size
      const from = Math.max(start, first)
      const to = Math.min(start + length, first + columns)
      if (from >= to) continue
      const part = embeddings.subarray((from - start) * this.#size, (to - start) * this.#size)
      target.set(part, (offset + from - first) * this.#size)
    }
  }
}

/** Whether an output is an input of a decoder: both axes after the tokens are equal. */
function fits(made: TensorSpec, read: TensorSpec): boolean {
  const sizes = ({ dims }: TensorSpec) => dims.slice(2).join()
  return made.name === read.name && made.type === read.type && sizes(made) === sizes(read)
}
