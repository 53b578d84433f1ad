import { join } from 'node:path'

import { isRecord } from '#shared/json.ts'
import { findJsonValue } from '#workers/models/folder-json.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { ModelSession } from '#workers/runtime/session.ts'

import { findModules } from './sentence-head.ts'

/** How the logits of a text's tokens become weights of the vocabulary. */
export interface SparseHead {
  readonly strategy: 'max' | 'sum'
  /** How often log(1 + x) is applied to positive logits: twice in the models of OpenSearch. */
  readonly logarithms: 1 | 2
}

/** The output of a graph from which weights are computed. */
export interface SparseOutput {
  readonly name: string
  /** A logit for each token of the vocabulary, or the weight of the token itself. */
  readonly kind: 'logits' | 'weights'
  readonly width: number
}

const ACTIVATIONS: ReadonlyMap<unknown, SparseHead['logarithms']> = new Map([
  ['relu', 1],
  ['log1p_relu', 2],
])
/** Modules of sparse encoders whose weights are not logits of a masked language model. */
const OTHER_HEADS = ['Router', 'SparseAutoEncoder', 'SparseStaticEmbedding']

/**
 * Reads the head of a sparse encoder; without the module `SpladePooling`, that of SPLADE v2 (Formal
 * 2021). Throws `ModelLoadError` for other heads.
 */
export async function readSparseHead(folder: string): Promise<SparseHead> {
  const modules = (await findModules(folder)) ?? []
  const other = modules.find(({ kind }) => OTHER_HEADS.includes(kind))
  if (other !== undefined) {
    throw new ModelLoadError(folder, `the module ${other.kind} of sparse encoders is not supported`)
  }
  const path = modules.find(({ kind }) => kind === 'SpladePooling')?.path ?? '1_SpladePooling'
  const found = await findJsonValue(folder, join(path, 'config.json'))
  const config = isRecord(found) ? found : {}
  const { pooling_strategy: strategy = 'max', activation_function: activation = 'relu' } = config
  const logarithms = ACTIVATIONS.get(activation)
  if ((strategy !== 'max' && strategy !== 'sum') || logarithms === undefined) {
    throw new ModelLoadError(
      folder,
      `${path}: the pooling ${String(strategy)} of ${String(activation)} is not known`,
    )
  }
  return { strategy, logarithms }
}

/**
 * Chooses the output of a graph: one weight per token, as in exports of BGE-M3, else the logits of
 * a masked language model. Throws `ModelLoadError` for a graph without either.
 */
export function chooseSparseOutput(
  { file, outputs }: Pick<ModelSession, 'file' | 'outputs'>,
  vocabularySize: number,
): SparseOutput {
  const ofTokens = outputs.filter(({ dims }) => dims.length === 3)
  const weights = ofTokens.find(({ dims }) => dims[2] === 1)
  const chosen = weights ?? ofTokens.find(({ name }) => name === 'logits') ?? ofTokens[0]
  const last = chosen?.dims[2]
  const width = typeof last === 'number' ? last : vocabularySize
  // Tables are often rounded up and have more rows than there are tokens.
  if (chosen === undefined || (weights === undefined && width < vocabularySize)) {
    throw new ModelLoadError(
      file,
      `not a sparse encoder: it needs logits of [batch, length, ${vocabularySize}], as masked language models have, or one weight of each token, as BGE-M3 has`,
    )
  }
  if (chosen.type !== 'float32' && chosen.type !== 'float16') {
    throw new ModelLoadError(file, `${chosen.name} must be float32 or float16`)
  }
  return { name: chosen.name, kind: weights === undefined ? 'logits' : 'weights', width }
}
