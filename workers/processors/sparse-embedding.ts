import type { ModelOptions } from '#shared/catalogue-options.ts'
import { SPARSE_VALUES_MAX, type SparseInput } from '#shared/contracts/embedding.ts'
import { failure } from '#shared/errors.ts'
import type { SparseEncoder } from '#workers/embedding/sparse-encoder.ts'

import { purposeOf } from './embedding-purpose.ts'
import { countTokens, type Prepared, toBase64 } from './prepared-embedding.ts'
import { allOrNone, type JobTools, yieldToEventLoop } from './processor-row.ts'

/** A model that embeds texts as weights of tokens. */
export interface SparseModel {
  readonly task: 'sparse'
  readonly encoder: SparseEncoder
  readonly options: ModelOptions
}

/** Reads the texts of a request for sparse vectors. */
export async function embedSparse(
  input: SparseInput,
  { encoder, options }: SparseModel,
  { signal, clock }: Pick<JobTools<unknown>, 'signal' | 'clock'>,
): Promise<Prepared> {
  const { prefix, ignored = [] } = purposeOf(input, encoder, options)
  if (ignored.length > 0) throw knowsNoPrompts()
  const tokensMax = input.tokensMax === 'context' ? encoder.contextLength : input.tokensMax
  const { truncationSide: side } = input
  const texts: (readonly number[])[] = []
  const share = yieldToEventLoop(clock)
  for (const item of input.items) {
    await share()
    if (typeof item === 'string')
      texts.push(await encoder.encodeText(prefix + item, tokensMax, side))
    else texts.push(encoder.checkTokenIds(item, tokensMax, side))
  }
  return {
    promptTokens: countTokens(texts),
    async compute() {
      let valueCount = 0
      const vectors = await allOrNone(
        signal,
        texts.map((tokenIds) => async (either) => {
          const { indices, values } = await encoder.embed(tokenIds, either)
          valueCount += indices.length
          if (valueCount > SPARSE_VALUES_MAX) throw tooManyValues()
          return { indices: toBase64(indices), values: toBase64(values) }
        }),
      )
      return { task: 'sparse', vectors }
    },
  }
}

// As in Text Embeddings Inference, whose clients name a prompt deliberately.
function knowsNoPrompts(): Error {
  return failure.invalidRequest(
    "Unsupported parameter: 'prompt_name' is not supported with this model, which reads queries and passages alike.",
    { param: 'prompt_name', code: 'unsupported_parameter' },
  )
}

function tooManyValues(): Error {
  return failure.invalidRequest(
    `Invalid 'inputs': the texts have more than ${SPARSE_VALUES_MAX} weights together, which one answer may have. Please send fewer texts.`,
    { param: 'inputs', code: 'array_above_max_length' },
  )
}
