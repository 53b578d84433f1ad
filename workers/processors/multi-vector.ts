import {
  MULTI_VECTOR_VALUES_MAX,
  type MultiVectorInput,
  type RerankInput,
} from '#shared/contracts/embedding.ts'
import { failure } from '#shared/errors.ts'
import { defined } from '#shared/json.ts'
import { maxSim, type TokenMatrix } from '#workers/embedding/max-sim.ts'
import type { MultiVectorEncoder } from '#workers/embedding/multi-vector-encoder.ts'
import type { MultiVectorText } from '#workers/embedding/multi-vector-reader.ts'

import { cutTo, refuseDimensions } from './embedding-dimensions.ts'
import { type Prepared, toBase64 } from './prepared-embedding.ts'
import { allOrNone, type JobTools, yieldToEventLoop } from './processor-row.ts'

/** A model that computes a vector for each token of a text. */
export interface MultiVectorModel {
  readonly task: 'multi-vector'
  readonly encoder: MultiVectorEncoder
}

type Tools = Pick<JobTools<unknown>, 'signal' | 'clock'>

/** Embeds the tokens of a request's texts. */
export async function embedTokens(
  { items, role, dimensions, isCut }: MultiVectorInput,
  { encoder }: MultiVectorModel,
  { signal, clock }: Tools,
): Promise<Prepared> {
  refuseDimensions(dimensions, encoder)
  const width = dimensions ?? encoder.dimensions
  const share = yieldToEventLoop(clock)
  const texts: MultiVectorText[] = []
  for (const item of items) {
    await share()
    texts.push(await encoder.read(item, role, isCut))
  }
  refuseValues(texts.reduce((sum, { kept }) => sum + kept.length, 0) * width)
  return {
    promptTokens: countTokens(texts),
    async compute() {
      const matrices = await allOrNone(
        signal,
        texts.map((text) => async (either) => {
          const matrix = await encoder.embed(text, either)
          return toBase64(narrowed(matrix, width))
        }),
      )
      return { task: 'multi-vector', matrices, width }
    },
  }
}

/** Embeds queries and documents, each once, and compares the vectors of their tokens. */
export async function rankByTokens(
  { query, queries = [], documents, isCut = true, truncationSide: side }: RerankInput,
  { encoder }: MultiVectorModel,
  { signal, clock }: Tools,
): Promise<Prepared> {
  const share = yieldToEventLoop(clock)
  const ofQueries = new Map<string, MultiVectorText>()
  for (const text of queries.length === 0 ? [query] : queries) {
    await share()
    if (!ofQueries.has(text)) ofQueries.set(text, await encoder.read(text, 'query', true))
  }
  const ofDocuments: MultiVectorText[] = []
  for (const document of documents) {
    await share()
    ofDocuments.push(await encoder.read(document, 'passage', isCut, { side, param: 'documents' }))
  }
  return {
    promptTokens: countTokens([...ofQueries.values(), ...ofDocuments]),
    async compute() {
      const matrices = await allOrNone(
        signal,
        [...ofQueries].map(([text, read]) => async (either) => {
          return [text, await encoder.embed(read, either)] as const
        }),
      )
      const byText = new Map(matrices)
      // The vectors of a document are dropped as soon as they are compared.
      const scores = await allOrNone(
        signal,
        ofDocuments.map((read, index) => async (either) => {
          const asked = defined(byText.get(queries[index] ?? query))
          return maxSim(asked, await encoder.embed(read, either), share)
        }),
      )
      return { task: 'rerank', scores }
    },
  }
}

/** The leading dimensions of all vectors. */
function narrowed({ values, dimensions }: TokenMatrix, width: number): Float32Array {
  if (width === dimensions) return values
  const count = values.length / dimensions
  const cut = new Float32Array(count * width)
  for (let at = 0; at < count; at++) {
    cut.set(cutTo(values.subarray(at * dimensions, (at + 1) * dimensions), width), at * width)
  }
  return cut
}

function countTokens(texts: readonly MultiVectorText[]): number {
  return texts.reduce((sum, { textTokens }) => sum + textTokens, 0)
}

function refuseValues(count: number): void {
  if (count <= MULTI_VECTOR_VALUES_MAX) return
  throw failure.invalidRequest(
    `Invalid 'input': the vectors of the texts have ${count} values together, of ${MULTI_VECTOR_VALUES_MAX} that one answer may have. Please send fewer or shorter texts.`,
    { param: 'input', code: 'array_above_max_length' },
  )
}
