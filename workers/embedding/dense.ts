import { pathInside } from '#workers/models/inside-folder.ts'
import { readSafetensors } from '#workers/tensor/safetensors.ts'

/** A layer that a pooled vector passes through: activation(weights × vector + bias). */
export interface DenseLayer {
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
const ACTIVATION_UNNAMED = 'torch.nn.modules.activation.Tanh' // as sentence-transformers has it

/** Reads a Dense module of sentence-transformers. Throws a sentence when it cannot be computed. */
export async function readDenseLayer(
  folder: string,
  module: string,
  config: Readonly<Record<string, unknown>>,
): Promise<DenseLayer> {
  const { in_features: inputs, out_features: outputs } = config
  const name = String(config.activation_function ?? ACTIVATION_UNNAMED)
  const lastWord = name.split('.').at(-1) ?? ''
  const activate = Object.hasOwn(ACTIVATIONS, lastWord) ? ACTIVATIONS[lastWord] : undefined
  if (activate === undefined) throw new Error(`${folder}: the activation ${name} is not supported`)
  const place = config.module_input_name ?? 'sentence_embedding'
  if (place !== 'sentence_embedding' || config.use_residual === true) {
    throw new Error(`${folder}: only a plain layer over the pooled vector is supported`)
  }
  const file = await pathInside(folder, `${module}/model.safetensors`).catch(needed(folder))
  const tensors = await readSafetensors(file).catch(needed(folder))
  const weights = tensors.get('linear.weight')?.values
  const bias = config.bias === false ? undefined : tensors.get('linear.bias')?.values
  if (typeof inputs !== 'number' || typeof outputs !== 'number') {
    throw new Error(`${folder}: in_features and out_features are missing`)
  }
  if (weights?.length !== inputs * outputs || (bias?.length ?? outputs) !== outputs) {
    throw new Error(`${folder}: the weights are not those of ${inputs} to ${outputs} values`)
  }
  return {
    outputs,
    apply(vector) {
      return Float32Array.from({ length: outputs }, (_, row) => {
        let sum = bias?.[row] ?? 0
        const start = row * inputs
        for (let i = 0; i < inputs; i++)
          sum += (weights[start + i] as number) * (vector[i] as number)
        return activate(sum)
      })
    },
  }
}

function needed(folder: string): (error: Error) => never {
  return (error) => {
    throw new Error(`${folder}: model.safetensors is needed: ${error.message}`, { cause: error })
  }
}
