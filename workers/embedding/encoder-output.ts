import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { ModelSession } from '#workers/runtime/session.ts'

import type { DenseLayer } from './dense.ts'
import type { SentenceHead } from './sentence-head.ts'

/** Which output of an encoder is taken, and what is still to be done to it. */
export interface EncoderOutput {
  readonly name: string
  /** Whether it is a vector of each text already, rather than one of each token. */
  readonly isPooled: boolean
  readonly dense: readonly DenseLayer[]
  /** Of the final vectors; undefined where the graph does not say. */
  readonly dimensions: number | undefined
}

// Vectors that the whole head is part of; token vectors; vectors pooled in the model's own way.
const HEAD_OUTPUTS = [
  ...['sentence_embedding', 'sentence_embeddings'],
  // Of exports of BGE-M3, which have its other heads beside it.
  ...['dense_vecs', 'dense_embeddings'],
]
const TOKEN_OUTPUTS = ['last_hidden_state', 'token_embeddings', 'hidden_states']
/** Vectors that a graph makes of texts in its own way, best first. */
export const TEXT_OUTPUTS = ['text_embeds', 'pooler_output']
const LOGITS = 'logits'

/**
 * Chooses the output of a graph. The head is computed here where the folder states it; else, or
 * where it has parts that are not known here, what the graph itself has made is taken. A tower has
 * all of its head in its graph.
 */
export function chooseOutput(
  session: Pick<ModelSession, 'file' | 'outputs'>,
  head: SentenceHead,
  isTower = false,
): EncoderOutput {
  const { file, outputs } = session
  const find = (names: readonly string[]) =>
    names.flatMap((name) => outputs.filter((spec) => spec.name === name))[0]
  const whole = find(HEAD_OUTPUTS)
  const tokens = find(TOKEN_OUTPUTS)
  const isPlain = head.isStated && head.problem === undefined && head.dense.length === 0
  const chosen = isTower
    ? find(TEXT_OUTPUTS)
    : whole !== undefined && !(tokens !== undefined && isPlain)
      ? whole
      : (tokens ?? find(TEXT_OUTPUTS) ?? outputs.find(({ name }) => name !== LOGITS))
  if (chosen === undefined || (chosen.dims.length !== 2 && chosen.dims.length !== 3)) {
    throw new ModelLoadError(
      file,
      `not an encoder of vectors: it needs ${isTower ? TEXT_OUTPUTS.join(' or ') : 'last_hidden_state, token_embeddings or sentence_embedding'}`,
    )
  }
  if (chosen.type !== 'float32' && chosen.type !== 'float16') {
    throw new ModelLoadError(file, `${chosen.name} must be float32 or float16`)
  }
  const isPooled = chosen.dims.length === 2
  if (chosen !== whole && head.problem !== undefined) throw new ModelLoadError(file, head.problem)
  const dense = chosen === whole ? [] : head.dense
  const width = chosen.dims.at(-1)
  const pooled =
    typeof width === 'number' ? width * (isPooled ? 1 : head.pooling.length) : undefined
  return { name: chosen.name, isPooled, dense, dimensions: dense.at(-1)?.outputs ?? pooled }
}
