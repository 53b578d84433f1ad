import type { AnswerDialect } from '#shared/contracts/answer-formats.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'
import type { AdapterLibrary } from '#workers/adapters/adapter-library.ts'
import type { FittedAdapter } from '#workers/adapters/fit-adapter.ts'
import type { TextEngine } from '#workers/engine/types.ts'
import { GRAMMAR_LIMITS, PROMPT_LIMITS, PreparationPool } from '#workers/preparation/thread-pool.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import { ConstraintCache } from '#workers/sampling/constraint/constraint-cache.ts'
import { SamplingWorkspace } from '#workers/sampling/sampler.ts'
import { isSpecial, showMarkers } from '#workers/text/answer-dialect.ts'
import type { TokenPieces } from '#workers/text/detokenizer.ts'
import type { TextModel } from '#workers/text/text-model.ts'
import type { VisionModel } from '#workers/vision/vision-model.ts'

import type { JobTools } from './processor-row.ts'

/** A language model ready for jobs: its engine, its text rules and what its requests share. */
export interface CompletionModel {
  readonly engine: TextEngine
  readonly text: TextModel
  /** Absent if the model has no adapters. */
  readonly adapters?: AdapterLibrary
  readonly workspace: SamplingWorkspace
  readonly constraints: ConstraintCache
  /** Grammars with calls, in which markers of calls are text. */
  readonly callConstraints: ConstraintCache
  /** The dialect of answers to chats. */
  readonly dialect: AnswerDialect
  /** Whether clients must know the dialect to read the answers. */
  readonly isDialectSpecial: boolean
  /**
   * Tokens of answers to chats; the dialect's markers of reasoning and of calls are visible text.
   */
  readonly answerPieces: { readonly withTools: TokenPieces; readonly withoutTools: TokenPieces }
  /** Reads images in chats; absent for text-only models. */
  readonly vision?: ImageReader
  /** Whether organizations reuse cached prefixes and grammars of each other. */
  readonly sharesCaches: boolean
  /** Whether any text is drafted from repetitions of its prompt; edits always are. */
  readonly draftsFromPrompt: boolean
  /** Compiles grammars that are too large for the event loop. */
  readonly grammars: PreparationPool
  /** Reads prompts that are too large for the event loop. */
  readonly prompts: PreparationPool
}

/** The image encoder of a model, and the storage of request images. */
interface ImageReader {
  readonly encoder: VisionModel
  readonly storage: ObjectStore
}

/** The tools of a job whose texts have an adapter or none. */
export type AdaptedTools = JobTools<CompletionModel, 'completion'> & {
  readonly adapter?: FittedAdapter
}

/** Settings of a language model beyond its files. */
interface CompletionModelOptions {
  readonly vision?: ImageReader
  /** Whether organizations share caches; each can then measure what others have cached. */
  readonly sharesCaches?: boolean
  readonly draftsFromPrompt?: boolean
  readonly adapters?: AdapterLibrary
}

/** Combines an engine and the text rules of the same model folder. */
export function createCompletionModel(
  engine: TextEngine,
  text: TextModel,
  { sharesCaches = false, draftsFromPrompt = false, adapters, vision }: CompletionModelOptions = {},
): CompletionModel {
  if (engine.decoderLength !== undefined && text.generation?.decoderStartTokenId === undefined) {
    const folder = text.folder ?? ''
    throw new ModelLoadError(folder, 'neither configuration has a decoder_start_token_id')
  }
  const dialect = text.dialect ?? { calls: 'hermes' }
  const { pieces } = text.tokenizer
  const withCalls = showMarkers(text.tokenizer, dialect, true)
  const withoutCalls = showMarkers(text.tokenizer, dialect, false)
  const constraints = new ConstraintCache(pieces, text.endTokenIds)
  return {
    engine,
    text,
    ...(adapters !== undefined && { adapters }),
    workspace: new SamplingWorkspace(),
    constraints,
    callConstraints:
      withCalls === pieces ? constraints : new ConstraintCache(withCalls, text.endTokenIds),
    dialect,
    isDialectSpecial: isSpecial(dialect),
    answerPieces: { withTools: withCalls, withoutTools: withoutCalls },
    ...(vision !== undefined && { vision }),
    sharesCaches,
    draftsFromPrompt,
    grammars: new PreparationPool(GRAMMAR_LIMITS),
    prompts: new PreparationPool(PROMPT_LIMITS),
  }
}
