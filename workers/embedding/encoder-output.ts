import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { ModelSession } from '#workers/runtime/session.ts'

import type { DenseLayer } from './dense.ts'
import type { SentenceHead } from './sentence-head.ts'

/** The output of an encoder that is read, and the remaining steps. */
export interface EncoderOutput {
  readonly name: string
  /** Whether it is already a vector of each text, rather than one of each token. */
  readonly isPooled: boolean
  readonly dense: readonly DenseLayer[]
  /** The size of the final vectors; undefined if the graph does not state it. */
  readonly dimensions: number | undefined
}

// Outputs, best first: vectors after the whole head, token vectors, vectors pooled by the model.
const HEAD_OUTPUTS = [
  ...['sentence_embedding', 'sentence_embeddings'],
  // Outputs of BGE-M3 exports, which also have its other heads.
  ...['dense_vecs', 'dense_embeddings'],
]
const TOKEN_OUTPUTS = ['last_hidden_state', 'token_embeddings', 'hidden_states']
/** Text vectors that a graph computes itself, best first. */
export const TEXT_OUTPUTS = [
  'text_embeds',
  'pooler_output',
  // The next two are outputs of jina-clip-v2.
  'text_embeddings',
  'l2norm_text_embeddings',
]
const LOGITS = 'logits'

/**
 * Chooses the output of a graph. If the folder describes the head and all of it is supported, it is
 * computed here; otherwise the graph's own result is used. A tower has its whole head in its graph.
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
