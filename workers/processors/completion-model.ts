import { SamplingWorkspace } from '../sampling/sampler.ts'
import { ConstraintCache } from '../sampling/constraint/constraint-cache.ts'
import type { TextEngine } from '../engine/types.ts'
import type { TextModel } from '../text/text-model.ts'

/** A language model ready for jobs: its engine, its text rules and what its requests share. */
export interface CompletionModel {
  readonly engine: TextEngine
  readonly text: TextModel
  readonly workspace: SamplingWorkspace
  readonly constraints: ConstraintCache
  /** Requests of one scope may reuse what the engine and the grammars keep of each other. */
  cacheScopeOf(organizationId: string): string
}

/** Settings of a language model beyond its files. */
export interface CompletionModelOptions {
  /** Whether organizations share caches, and may measure what is in them. */
  readonly sharesCaches?: boolean
}

/** Puts an engine and the text rules of the same model folder together. */
export function createCompletionModel(
  engine: TextEngine,
  text: TextModel,
  { sharesCaches = false }: CompletionModelOptions = {},
): CompletionModel {
  return {
    engine,
    text,
    workspace: new SamplingWorkspace(),
    constraints: new ConstraintCache(text.tokenizer.pieces, text.endTokenIds),
    cacheScopeOf: (organizationId) => (sharesCaches ? '' : organizationId),
  }
}
