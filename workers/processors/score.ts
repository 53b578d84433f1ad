import type { ScoreInput } from '#shared/contracts/completion.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'
import { failure } from '#shared/errors.ts'
import type { FittedAdapter } from '#workers/adapters/fit-adapter.ts'
import type { SequenceEnd } from '#workers/engine/types.ts'
import { logprobOf } from '#workers/sampling/logprobs.ts'
import { contentOnly } from '#workers/text/content-spans.ts'
import type { TokenPieces } from '#workers/text/detokenizer.ts'

import type { AdaptedTools, CompletionModel } from './completion-model.ts'
import { cacheScopeOf, readSource } from './completion-prompt.ts'
import { allOrNone, yieldToEventLoop } from './processor-row.ts'

const BRIDGE = '\n\n---\n\nThe above passage is related to: '
const SCALE = 100 // scores are hundredths of a nat per token of the query

/**
 * Scores documents by query likelihood: how much likelier the query becomes, per token and in
 * hundredths of a nat, with the document before it than without.
 */
export async function processScore(
  job: JobEnvelope<'completion'>,
  input: ScoreInput,
  { model, reply, signal, clock, adapter }: AdaptedTools,
): Promise<void> {
  if (model.engine.decoderLength !== undefined) {
    throw failure.invalidRequest(
      'This model cannot search: its prompts are read by an encoder and have no log-probabilities.',
      { param: 'model' },
    )
  }
  const startedAt = clock.monotonic()
  const texts = [] as (readonly number[])[]
  const share = yieldToEventLoop(clock)
  for (const [index, document] of ['', ...input.documents].entries()) {
    await share()
    texts.push(
      await encodePassage(model, { document, query: input.query, index: index - 1, signal }),
    )
  }
  const promptTokens = texts.reduce((sum, tokenIds) => sum + tokenIds.length, 0)
  reply.started(promptTokens)
  const preparedAt = clock.monotonic()
  const { query } = input
  const cacheScope = cacheScopeOf(model, job.organizationId)
  const values = await allOrNone(
    signal,
    texts.map(
      (tokenIds) => (either) =>
        scoreQuery(model, { tokenIds, query, signal: either, cacheScope, adapter }),
    ),
  )
  const [empty, ...scored] = values as [QueryScore, ...QueryScore[]]
  const scores = scored.map(({ value }) => value - empty.value)
  const cachedTokens = values.reduce((sum, { end }) => sum + end.cachedTokens, 0)
  reply.result(
    { task: 'score', scores },
    { promptTokens, completionTokens: 0, cachedTokens },
    {
      queueMs: Math.max(clock.now() - job.enqueuedAtMs, 0),
      prepareMs: preparedAt - startedAt,
      runMs: clock.monotonic() - preparedAt,
    },
  )
}

/** Document and query as one text. Index -1 is the empty document, the baseline of all others. */
async function encodePassage(
  model: CompletionModel,
  passage: { document: string; query: string; index: number; signal: AbortSignal },
): Promise<readonly number[]> {
  const { document, query, index, signal } = passage
  const { contextLength } = model.engine
  const start = model.text.documentStartTokenId
  const prefix = start === undefined ? [] : [start]
  const rendered = contentOnly(`${document}${BRIDGE}${query}`)
  const source = { form: 'rendered', rendered } as const
  const { tokenIds, count } = await readSource(model, source, {
    signal,
    addSpecialTokens: false,
    tokensMax: contextLength - prefix.length,
  })
  if (tokenIds !== undefined) return [...prefix, ...tokenIds]
  const param = index < 0 ? 'query' : `documents[${index}]`
  throw failure.invalidRequest(
    `This model's maximum context length is ${contextLength} tokens, however ${param} resulted in ` +
      `${count + prefix.length} tokens${index < 0 ? '' : ' together with the query'}. Please reduce it.`,
    { param, code: 'context_length_exceeded' },
  )
}

interface QueryScore {
  readonly value: number
  readonly end: SequenceEnd
}

/** The mean log-probability of the query's tokens, times 100. */
async function scoreQuery(
  model: CompletionModel,
  options: {
    readonly tokenIds: readonly number[]
    readonly query: string
    readonly signal: AbortSignal
    readonly cacheScope: string
    readonly adapter: FittedAdapter | undefined
  },
): Promise<QueryScore> {
  const { tokenIds, query, signal, cacheScope, adapter } = options
  const first = Math.max(queryStart(model.text.tokenizer.pieces, tokenIds, query), 1)
  let sum = 0
  const end = await model.engine.run(
    {
      promptTokenIds: tokenIds,
      generatedTokenIds: [],
      maxNewTokens: 0,
      sampler: { next: refuseToSample },
      endTokenIds: model.text.endTokenIds,
      cacheScope,
      ...(adapter && { adapter }),
      onToken: () => false,
      onPromptLogits: (position, logits) => {
        const next = tokenIds[position + 1]
        if (next !== undefined && position + 1 >= first) sum += logprobOf(logits, next)
      },
    },
    { signal },
  )
  return { value: (SCALE * sum) / Math.max(tokenIds.length - first, 1), end }
}

/** The first token that covers a part of the query, found by walking back from the end. */
function queryStart(pieces: TokenPieces, tokenIds: readonly number[], query: string): number {
  const wanted = Buffer.byteLength(query)
  let covered = 0
  let start = tokenIds.length
  while (start > 0 && covered < wanted) {
    start -= 1
    covered += pieces.bytesOf(tokenIds[start] as number).length
  }
  return start
}

function refuseToSample(): never {
  throw new Error('scoring asks for no token')
}
