import { SamplingWorkspace } from '../sampling/sampler.ts'
import { PreparationPool } from '../preparation/thread-pool.ts'
import { ConstraintCache } from '../sampling/constraint/constraint-cache.ts'
import type { TextEngine } from '../engine/types.ts'
import type { TextModel } from '../text/text-model.ts'

/** A language model ready for jobs: its engine, its text rules and what its requests share. */
export interface CompletionModel {
  readonly engine: TextEngine
  readonly text: TextModel
  readonly workspace: SamplingWorkspace
  readonly constraints: ConstraintCache
  readonly preparation: PreparationPool
}

/** Puts an engine and the text rules of the same model folder together. */
export function createCompletionModel(engine: TextEngine, text: TextModel): CompletionModel {
  return {
    engine,
    text,
    workspace: new SamplingWorkspace(),
    constraints: new ConstraintCache(text.tokenizer.pieces, text.endTokenIds),
    preparation: new PreparationPool(),
  }
}
