import { join } from 'node:path'

import { systemClock } from '#shared/clock.ts'
import { failure } from '#shared/errors.ts'
import { isRecord } from '#shared/json.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import type { TextEngine } from '#workers/engine/types.ts'
import { findJson, readJson } from '#workers/models/folder-json.ts'
import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { TemplateMessage } from '#workers/text/chat-template.ts'
import { loadTextModel, type TextModel } from '#workers/text/text-model.ts'

import { CHARS_PER_TOKEN_MAX } from './pair-input.ts'
import { truncateText } from './read-input.ts'
import { type DocumentCut, documentTooLong, type Reranker } from './reranker.ts'
import { findModules } from './sentence-head.ts'
import type { ClassifierOptions } from './sequence-classifier.ts'

/** The tokens of a language model whose logits give the relevance. */
interface LogitScore {
  readonly trueTokenId: number
  /** If undefined, the logit of `trueTokenId` alone is the score. */
  readonly falseTokenId: number | undefined
  /** The system message before query and document. */
  readonly instruction: string | undefined
}

const SLOTS = 8
const QUERY_SHARE = 0.5 // maximum share of the context, as for cross-encoders
const CUTS_MAX = 20

/** Reads `N_LogitScore/config.json`; undefined for folders without it. */
async function readLogitScore(folder: string): Promise<LogitScore | undefined> {
  const module = (await findModules(folder))?.find(({ kind }) => kind === 'LogitScore')
  if (module === undefined) return undefined
  const file = join(module.path, 'config.json')
  const config = await readJson(folder, file)
  const { true_token_id: trueTokenId, false_token_id: falseTokenId = null } = config
  const isToken = (value: unknown): value is number => Number.isInteger(value) && Number(value) >= 0
  if (!isToken(trueTokenId) || (falseTokenId !== null && !isToken(falseTokenId))) {
    throw new ModelLoadError(
      folder,
      `${file} must name true_token_id and may name one false_token_id, both non-negative integers`,
    )
  }
  const settings = (await findJson(folder, 'config_sentence_transformers.json')) ?? {}
  const { prompts, default_prompt_name: name } = settings
  const instruction = isRecord(prompts) && typeof name === 'string' ? prompts[name] : undefined
  return {
    trueTokenId,
    falseTokenId: falseTokenId ?? undefined,
    instruction: typeof instruction === 'string' && instruction !== '' ? instruction : undefined,
  }
}

/**
 * Loads a language model as a reranker: the chat template renders query and document, and the
 * logits of the next token give the score. Undefined for other models. Throws `ModelLoadError`.
 */
export async function openCausalReranker({
  runtime,
  folder,
  onnxFile,
  maxContextTokens,
  session,
}: ClassifierOptions): Promise<Reranker | undefined> {
  const score = await readLogitScore(folder)
  if (score === undefined) return undefined
  const text = await loadTextModel(folder, systemClock)
  const engine = await openTextEngine({
    runtime,
    folder,
    slots: SLOTS,
    ...(onnxFile !== undefined && { onnxFile }),
    ...(maxContextTokens !== undefined && { maxContextTokens }),
    ...session,
  })
  return closeOnFailure(engine, () => {
    const { contextLength, vocabSize } = engine
    if (Math.max(score.trueTokenId, score.falseTokenId ?? 0) >= vocabSize) {
      throw new ModelLoadError(
        folder,
        `the token ids of LogitScore must be below ${vocabSize}, the size of the vocabulary`,
      )
    }
    const encode = createPromptEncoder(folder, text, score.instruction)
    const scopes = new WeakMap<AbortSignal, string>()
    let jobs = 0
    return {
      contextLength,
      encodePair(query, document, cut = { isCut: true }) {
        // A token has at most this many characters, so longer texts never fit.
        const charsMax = contextLength * CHARS_PER_TOKEN_MAX
        const kept = truncateText(document, charsMax, cut.side)
        const pair = { query: query.slice(0, charsMax), document: kept }
        return encodeWithin(encode, contextLength, { ...pair, ...cut })
      },
      logit({ tokenIds }, signal) {
        // Documents of one job share the cached prefix; different jobs share nothing.
        const cacheScope = scopes.get(signal) ?? `job ${++jobs}`
        scopes.set(signal, cacheScope)
        return scorePrompt(engine, score, { tokenIds, cacheScope, signal })
      },
      get waitingCount() {
        return engine.stats().waiting
      },
      close: () => engine.close(),
    }
  })
}

type PromptEncoder = (query: string, document: string) => readonly number[]

function createPromptEncoder(
  folder: string,
  { chatTemplate, tokenizer }: TextModel,
  instruction: string | undefined,
): PromptEncoder {
  const system: TemplateMessage[] =
    instruction === undefined ? [] : [{ role: 'system', content: instruction }]
  const render = (query: string, document: string) =>
    chatTemplate?.render(
      [...system, { role: 'query', content: query }, { role: 'document', content: document }],
      [],
      { opensAnswer: false },
    )
  const rendered = render('a query', 'some document')?.text
  if (!rendered?.includes('a query') || !rendered.includes('some document')) {
    throw new ModelLoadError(
      folder,
      'its chat template does not render messages of the roles query and document',
    )
  }
  return (query, document) => {
    const { text = '', content = [] } = render(query, document) ?? {}
    return tokenizer.encode(text, { addSpecialTokens: false, content })
  }
}

/** Encodes a prompt that fits the context: truncates a long document, throws for a long query. */
function encodeWithin(
  encode: PromptEncoder,
  contextLength: number,
  {
    query,
    document,
    isCut,
    side,
  }: DocumentCut & { readonly query: string; readonly document: string },
): { readonly tokenIds: readonly number[] } {
  let [kept, tokenIds] = [document, encode(query, document)]
  for (let cuts = 0; tokenIds.length > contextLength && cuts < CUTS_MAX; cuts += 1) {
    const queryTokens = cuts === 0 ? encode(query, '').length : 0
    if (queryTokens > contextLength * QUERY_SHARE) {
      throw failure.invalidRequest(
        `The query has ${queryTokens} tokens with the model's instruction; this model accepts at most ${Math.floor(contextLength * QUERY_SHARE)}.`,
        { param: 'query', code: 'context_length_exceeded' },
      )
    }
    if (!isCut) throw documentTooLong(contextLength - queryTokens)
    const chars = Math.floor((kept.length * contextLength) / (tokenIds.length + 1))
    kept = truncateText(kept, chars, side)
    tokenIds = encode(query, kept)
  }
  return { tokenIds }
}

async function scorePrompt(
  engine: TextEngine,
  { trueTokenId, falseTokenId }: LogitScore,
  prompt: {
    readonly tokenIds: readonly number[]
    readonly cacheScope: string
    readonly signal: AbortSignal
  },
): Promise<number> {
  const { tokenIds: promptTokenIds, cacheScope, signal } = prompt
  let logit = Number.NaN
  const next = (logits: Float32Array) => {
    const other = falseTokenId === undefined ? 0 : (logits[falseTokenId] ?? Number.NaN)
    logit = (logits[trueTokenId] ?? Number.NaN) - other
    return { tokenId: trueTokenId }
  }
  await engine.run(
    {
      promptTokenIds,
      generatedTokenIds: [],
      maxNewTokens: 1,
      sampler: { next },
      endTokenIds: new Set(),
      cacheScope,
      onToken: () => false,
    },
    { signal },
  )
  return logit
}
