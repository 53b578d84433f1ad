import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'
import { allocateElements, type ElementType } from '#workers/tensor/element-type.ts'

import type { EncoderStates } from './encoder-states.ts'

const OUTPUT = 'last_hidden_state'

/** Encodes the source texts of answers, such as translations and summaries. */
export class SourceEncoder {
  /** Whether texts of different lengths may share a run. */
  readonly hasMask: boolean
  readonly #runtime: Runtime
  readonly #session: ModelSession
  readonly #stateType: ElementType

  /** Throws `ModelLoadError` for a graph with inputs other than token ids. */
  constructor(runtime: Runtime, session: ModelSession, stateType: ElementType) {
    const { file, inputs, outputs } = session
    const unknown = inputs.find(({ name }) => !['input_ids', 'attention_mask'].includes(name))
    if (unknown)
      throw new ModelLoadError(file, `the encoder needs an unknown input ${unknown.name}`)
    const ids = inputs.find(({ name }) => name === 'input_ids')
    if (ids?.type !== 'int64' || !outputs.some(({ name }) => name === OUTPUT)) {
      throw new ModelLoadError(file, `it must make ${OUTPUT} from input_ids of type int64`)
    }
    this.#runtime = runtime
    this.#session = session
    this.#stateType = stateType
    this.hasMask = inputs.some(({ name }) => name === 'attention_mask')
  }

  /** The states of each text. Texts that are the same list object are encoded once. */
  async encode(texts: readonly (readonly number[])[]): Promise<readonly EncoderStates[]> {
    const unique = [...new Set(texts)]
    const length = Math.max(...unique.map((text) => text.length))
    const ids = new BigInt64Array(unique.length * length)
    const mask = new BigInt64Array(ids.length)
    for (const [row, text] of unique.entries()) {
      for (const [index, id] of text.entries()) ids[row * length + index] = BigInt(id)
      mask.fill(1n, row * length, row * length + text.length)
    }
    const dims = [unique.length, length]
    const feeds: Record<string, Tensor> = {
      input_ids: this.#runtime.tensor('int64', ids, dims),
      ...(this.hasMask && { attention_mask: this.#runtime.tensor('int64', mask, dims) }),
    }
    try {
      const { [OUTPUT]: output } = await this.#session.run(feeds, { [OUTPUT]: null })
      try {
        const states = new Map(
          unique.map((text, row) => [text, this.#read(output, row, text.length)] as const),
        )
        return texts.map((text) => states.get(text) as EncoderStates)
      } finally {
        output.dispose()
      }
    } finally {
      for (const tensor of Object.values(feeds)) tensor.dispose()
    }
  }

  /** A row without its padding. */
  #read({ data, dims }: Tensor, row: number, positions: number): EncoderStates {
    const [, length = 0, width = 0] = dims
    const states = allocateElements(this.#stateType, positions * width) as Float32Array
    const start = row * length * width
    states.set(data.subarray(start, start + positions * width) as Float32Array)
    return { data: states, positions }
  }
}
