import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { TensorSpec } from '#workers/runtime/specs.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'
import { allocateElements, type TensorData } from '#workers/tensor/element-type.ts'

/** Values in float32, for any precision of the graph. */
export interface Volume {
  readonly data: Float32Array
  readonly dims: readonly number[]
}

/**
 * The named outputs of a run as float32, the first output if none is named. Inputs are converted to
 * the types of the graph.
 */
export async function runVolumes(
  runtime: Runtime,
  session: ModelSession,
  volumes: Readonly<Record<string, Volume>>,
  options: { readonly outputs?: readonly string[]; readonly signal: AbortSignal },
): Promise<readonly Volume[]> {
  const { outputs = [nameOf(session.outputs)], signal } = options
  const feeds: Record<string, Tensor> = {}
  try {
    for (const { name, type = 'float32' } of session.inputs) {
      const volume = volumes[name]
      if (volume === undefined) throw new Error(`${session.file}: nothing for the input ${name}`)
      feeds[name] = runtime.tensor(type, convert(volume.data, type), volume.dims)
    }
    const fetches = Object.fromEntries(outputs.map((name) => [name, null]))
    const tensors = await session.run(feeds, fetches, { signal })
    return outputs.map((name) => {
      const { data, dims } = tensors[name] as Tensor
      const copy = Float32Array.from(data as unknown as ArrayLike<number>)
      tensors[name]?.dispose()
      return { data: copy, dims }
    })
  } finally {
    for (const tensor of Object.values(feeds)) tensor.dispose()
  }
}

/** One volume after the other along the first axis. */
export function stack(volumes: readonly Volume[]): Volume {
  const length = volumes[0]?.data.length ?? 0
  const data = new Float32Array(length * volumes.length)
  for (const [row, volume] of volumes.entries()) data.set(volume.data, row * length)
  return { data, dims: [volumes.length, ...(volumes[0]?.dims.slice(1) ?? [])] }
}

/** The name of the first input or output. */
export function nameOf(specs: readonly TensorSpec[]): string {
  const [first] = specs
  if (first === undefined) throw new Error('the model has no inputs or outputs')
  return first.name
}

function convert(values: Float32Array, type: NonNullable<TensorSpec['type']>): TensorData {
  if (type === 'float32') return values
  if (type === 'int64') return BigInt64Array.from(values, (value) => BigInt(Math.round(value)))
  const data = allocateElements(type, values.length) as Float32Array
  data.set(values)
  return data
}
