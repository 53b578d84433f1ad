import { defined } from '#shared/json.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
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
  readonly #size: number

  /** Throws `ModelLoadError` for a graph whose embeddings do not fit the decoder. */
  constructor(runtime: Runtime, session: ModelSession, shape: EmbeddingShape) {
    const [input] = session.inputs
    const [output] = session.outputs
    const isFit = output?.dims.at(-1) === shape.size && output.type === shape.type
    if (input?.type !== 'int64' || output === undefined || !isFit) {
      throw new ModelLoadError(
        session.file,
        `it must make ${shape.type} embeddings of ${shape.size} elements from int64 token ids`,
      )
    }
    this.#runtime = runtime
    this.#session = session
    this.#input = input.name
    this.#output = output.name
    this.#size = shape.size
  }

  /** Embeddings of rows of token ids, [rows, columns, size]; the caller disposes of them. */
  async embed(ids: BigInt64Array, rows: readonly RowSpans[]): Promise<Tensor> {
    const columns = ids.length / rows.length
    const known = ids.some((id) => id < 0n) ? ids.map((id) => (id < 0n ? 0n : id)) : ids
    const tensor = this.#runtime.tensor('int64', known, [rows.length, columns])
    try {
      const results = await this.#session.run({ [this.#input]: tensor }, { [this.#output]: null })
      const embedded = defined(results[this.#output])
      for (const [row, spans] of rows.entries()) {
        this.#fill(embedded.data as Float32Array, row * columns, columns, spans)
      }
      return embedded
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
