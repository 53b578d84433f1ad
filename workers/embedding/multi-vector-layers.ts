import { join } from 'node:path'

import { findJson } from '#workers/models/folder-json.ts'
import { pathInside } from '#workers/models/inside-folder.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import { SafetensorsFile } from '#workers/tensor/safetensors-file.ts'

import { createDenseLayer, type DenseLayer, readDenseLayer } from './dense.ts'
import type { MultiVectorSettings } from './multi-vector-settings.ts'
import type { SentenceModule } from './sentence-head.ts'

/** The layers that are applied to each vector of a graph. */
export interface TokenLayers {
  readonly layers: readonly DenseLayer[]
  readonly dimensions: number
  /** Multiplications per vector, to estimate how long many of them take. */
  readonly products: number
}

/** The output of FlagEmbedding, which also has other heads. */
const PLAIN_OUTPUT = 'colbert_vecs'
const TOKEN_OUTPUTS = ['token_embeddings', 'last_hidden_state', 'hidden_states']

/**
 * The output with a vector of each token. Throws `ModelLoadError` when there is none, or when the
 * folder does not describe how the model reads texts.
 */
export function chooseTokenOutput(
  { file, outputs }: Pick<ModelSession, 'file' | 'outputs'>,
  settings: MultiVectorSettings | undefined,
): string {
  const ofTokens = outputs.filter(
    ({ name, dims }) => dims.length === 3 && dims[2] !== 1 && name !== 'logits',
  )
  const find = (...names: readonly string[]) => ofTokens.find(({ name }) => names.includes(name))
  const own = find(PLAIN_OUTPUT)
  if (settings === undefined && own === undefined) {
    throw new ModelLoadError(
      file,
      `not a model of several vectors: it needs the settings of PyLate or sentence-transformers in config_sentence_transformers.json, artifact.metadata as ColBERT has it, or an output ${PLAIN_OUTPUT}`,
    )
  }
  const projected = ofTokens.find(({ dims }) => dims[2] === settings?.dimensions)
  const chosen = own ?? projected ?? find(...TOKEN_OUTPUTS) ?? ofTokens[0]
  if (chosen === undefined) {
    throw new ModelLoadError(
      file,
      'it needs an output of [batch, length, dimensions] with more than one value for each token',
    )
  }
  if (chosen.type !== 'float32' && chosen.type !== 'float16') {
    throw new ModelLoadError(file, `${chosen.name} must be float32 or float16`)
  }
  return chosen.name
}

/** The source of the layers. */
interface LayerPlace {
  readonly folder: string
  /** The graph, for messages. */
  readonly file: string
}

/**
 * The layers after a graph whose vectors have this many values: those of the modules or of the
 * checkpoint, unless the graph already contains them. Throws `ModelLoadError` when they do not fit.
 */
export async function layersAfter(
  width: number,
  { layers: stated, dimensions }: MultiVectorSettings,
  place: LayerPlace,
): Promise<TokenLayers> {
  if (stated === 'checkpoint') {
    if (width === dimensions) return layersOf([], width)
    return layersOf([await projectionOf(width, place)], width)
  }
  const layers = await readModules(stated, place.folder)
  const first = layers[0]
  if (first === undefined || first.inputs === width) return checked(layers, width, place)
  if (layers.at(-1)?.outputs === width) return layersOf([], width)
  throw new ModelLoadError(
    place.file,
    `a vector of the graph has ${width} values, but ${stated[0]?.path} reads ${first.inputs}`,
  )
}

function layersOf(layers: readonly DenseLayer[], width: number): TokenLayers {
  const products = layers.reduce((sum, { inputs, outputs }) => sum + inputs * outputs, 1)
  return { layers, dimensions: layers.at(-1)?.outputs ?? width, products }
}

function checked(layers: readonly DenseLayer[], width: number, { file }: LayerPlace): TokenLayers {
  for (const [at, { inputs }] of layers.entries()) {
    const given = layers[at - 1]?.outputs ?? width
    if (given === inputs) continue
    throw new ModelLoadError(file, `a layer of ${inputs} values follows one of ${given}`)
  }
  return layersOf(layers, width)
}

async function readModules(
  modules: readonly SentenceModule[],
  folder: string,
): Promise<readonly DenseLayer[]> {
  const layers: DenseLayer[] = []
  for (const { path } of modules) {
    const config = (await findJson(folder, join(path, 'config.json'))) ?? {}
    const reading = readDenseLayer(folder, path, config, 'token_embeddings')
    layers.push(
      await reading.catch((error: Error) => {
        throw new ModelLoadError(folder, error.message)
      }),
    )
  }
  return layers
}

const CHECKPOINT = 'model.safetensors'
const CHECKPOINT_BYTES_MAX = 16 * 2 ** 30
const HEADER_BYTES_MAX = 16 << 20
const LINEAR = 'linear.weight'

/** The projection of a ColBERT checkpoint; no other weights are read. */
async function projectionOf(width: number, { folder, file }: LayerPlace): Promise<DenseLayer> {
  const limits = { bytesMax: CHECKPOINT_BYTES_MAX, headerBytesMax: HEADER_BYTES_MAX }
  const opening = pathInside(folder, CHECKPOINT).then((path) => SafetensorsFile.open(path, limits))
  const checkpoint = await opening.catch((error: Error) => {
    throw new ModelLoadError(
      file,
      `a vector of the graph has ${width} values, so that ${CHECKPOINT} with ${LINEAR} is needed: ${error.message}`,
    )
  })
  try {
    const [outputs = 0, inputs = 0] = checkpoint.tensors.get(LINEAR)?.dims ?? []
    if (inputs !== width || outputs < 1) {
      throw new ModelLoadError(
        file,
        `${LINEAR} of ${CHECKPOINT} must read ${width} values, not ${inputs}`,
      )
    }
    return createDenseLayer({ inputs, outputs, weights: await checkpoint.read(LINEAR) })
  } finally {
    await checkpoint.close()
  }
}
