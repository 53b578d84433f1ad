import { pathInside } from '#workers/models/inside-folder.ts'
import { readSafetensors } from '#workers/tensor/safetensors.ts'

/** A layer that is applied to a vector: activation(weights × vector + bias) + its residual. */
export interface DenseLayer {
  readonly inputs: number
  readonly outputs: number
  apply(vector: Float32Array): Float32Array
}

/** Activations by the last word of their name in PyTorch. */
const ACTIVATIONS: Readonly<Record<string, (value: number) => number>> = {
  Identity: (value) => value,
  Tanh: Math.tanh,
  ReLU: (value) => Math.max(value, 0),
  Sigmoid: (value) => 1 / (1 + Math.exp(-value)),
  SiLU: (value) => value / (1 + Math.exp(-value)),
}
const ACTIVATION_UNNAMED = 'torch.nn.modules.activation.Tanh' // the format of sentence-transformers

/** The input of a Dense module: the vector of a text, or those of its tokens. */
type Place = 'sentence_embedding' | 'token_embeddings'

/** Reads a Dense module of sentence-transformers. Throws when it is not supported. */
export async function readDenseLayer(
  folder: string,
  module: string,
  config: Readonly<Record<string, unknown>>,
  place: Place = 'sentence_embedding',
): Promise<DenseLayer> {
  const { in_features: inputs, out_features: outputs } = config
  const name = String(config.activation_function ?? ACTIVATION_UNNAMED)
  const lastWord = name.split('.').at(-1) ?? ''
  const activate = Object.hasOwn(ACTIVATIONS, lastWord) ? ACTIVATIONS[lastWord] : undefined
  if (activate === undefined) throw new Error(`${folder}: the activation ${name} is not supported`)
  if ((config.module_input_name ?? place) !== place) {
    throw new Error(`${folder}: only a layer over ${place} is supported`)
  }
  if (typeof inputs !== 'number' || typeof outputs !== 'number') {
    throw new Error(`${folder}: in_features and out_features are missing`)
  }
  const file = await pathInside(folder, `${module}/model.safetensors`).catch(needed(folder))
  const tensors = await readSafetensors(file).catch(needed(folder))
  const read = (tensor: string, count: number): Float32Array => {
    const values = tensors.get(tensor)?.values
    if (values?.length !== count) {
      throw new Error(`${folder}: the weights are not those of ${inputs} to ${outputs} values`)
    }
    if (values.every(Number.isFinite)) return values
    throw new Error(`${folder}: the weights of ${module} are not all finite numbers`)
  }
  const hasBias = config.bias !== false && tensors.has('linear.bias')
  const isResidual = config.use_residual === true
  return createDenseLayer({
    inputs,
    outputs,
    activate,
    weights: read('linear.weight', inputs * outputs),
    ...(hasBias && { bias: read('linear.bias', outputs) }),
    ...(isResidual && {
      residual: inputs === outputs ? 'identity' : read('residual.weight', inputs * outputs),
    }),
  })
}

/** The weights of a layer, row by row. */
interface DenseWeights {
  readonly inputs: number
  readonly outputs: number
  readonly weights: Float32Array
  readonly bias?: Float32Array
  /** Weights of the residual connection, or the vector itself. */
  readonly residual?: Float32Array | 'identity'
  readonly activate?: (value: number) => number
}

/** Creates a layer from its weights. */
export function createDenseLayer({
  inputs,
  outputs,
  weights,
  bias,
  residual,
  activate = (value) => value,
}: DenseWeights): DenseLayer {
  const product = (matrix: Float32Array, row: number, vector: Float32Array): number => {
    let sum = 0
    const start = row * inputs
    for (let i = 0; i < inputs; i++) sum += (matrix[start + i] as number) * (vector[i] as number)
    return sum
  }
  const added = (row: number, vector: Float32Array): number => {
    if (residual === undefined) return 0
    return residual === 'identity' ? (vector[row] as number) : product(residual, row, vector)
  }
  return {
    inputs,
    outputs,
    apply(vector) {
      const made = new Float32Array(outputs)
      for (let row = 0; row < outputs; row++) {
        made[row] =
          activate((bias?.[row] ?? 0) + product(weights, row, vector)) + added(row, vector)
      }
      return made
    },
  }
}

function needed(folder: string): (error: Error) => never {
  return (error) => {
    throw new Error(`${folder}: model.safetensors is needed: ${error.message}`, { cause: error })
  }
}
