import { openAll } from '#workers/runtime/close-on-failure.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'
import { openSessionPool, type SessionPool } from '#workers/runtime/session-pool.ts'
import type { TensorSpec } from '#workers/runtime/specs.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'
import { allocateElements, type TensorData } from '#workers/tensor/element-type.ts'

import type { DiffusionFiles } from './diffusion-files.ts'

/** Values in float32, for any precision of the graph. */
export interface Volume {
  readonly data: Float32Array
  readonly dims: readonly number[]
}

/** The four networks of Stable Diffusion as functions. All of them stop when the signal aborts. */
export interface Networks {
  /** The number of images that are worth computing in parallel. */
  readonly poolSize: number
  /** `[1, tokens]` to the hidden states that the U-Net attends to. */
  encodeText(tokenIds: readonly number[], signal: AbortSignal): Promise<Volume>
  /** The U-Net's predictions for the same latents under each text, in one run where possible. */
  predict(request: UnetRequest, signal: AbortSignal): Promise<readonly Float32Array[]>
  /** Pixels in −1 … 1, `[1, 3, side, side]`, to latents. */
  encodeImage(image: Volume, signal: AbortSignal): Promise<Float32Array>
  decodeLatents(latents: Volume, signal: AbortSignal): Promise<Volume>
  close(): Promise<void>
}

/** One run of the U-Net. */
interface UnetRequest {
  /** `[1, channels, side, side]`. */
  readonly sample: Volume
  readonly timestep: number
  readonly texts: readonly Volume[]
  /** For distilled models with a guidance input. */
  readonly guidance: Float32Array | undefined
}

/** Loads the networks of a folder. With `isAlone`, a run gets all cores. */
export async function openNetworks(
  runtime: Runtime,
  files: DiffusionFiles,
  options: SessionOptions = {},
  isAlone = () => true,
): Promise<Networks> {
  const open = (part: keyof DiffusionFiles['modelFiles']) =>
    openSessionPool(runtime, files.modelFiles[part], options)
  const networks = await openAll([open('text'), open('unet'), open('decoder'), open('encoder')])
  const [text, unet, decoder, encoder] = networks
  const only = (network: SessionPool, volume: Volume, signal: AbortSignal) => {
    const session = network.choose(isAlone())
    return runOnce(runtime, session, { [nameOf(session.inputs)]: volume }, signal)
  }
  const isSplit = unet.wide.inputs.some(({ name, dims }) => name === 'sample' && dims[0] === 1)
  return {
    poolSize: unet.poolSize,
    encodeText: (tokenIds, signal) =>
      only(text, { data: Float32Array.from(tokenIds), dims: [1, tokenIds.length] }, signal),
    async predict(request, signal) {
      const session = unet.choose(isAlone())
      // Exports with a fixed batch size of one run the texts one after another.
      if (!isSplit) return predictAll(runtime, session, request, signal)
      const predictions: Float32Array[] = []
      for (const one of request.texts) {
        const run = { ...request, texts: [one] }
        predictions.push(...(await predictAll(runtime, session, run, signal)))
      }
      return predictions
    },
    async encodeImage(image, signal) {
      const { data, dims } = await only(encoder, image, signal)
      const isMeanAndVariance = dims[1] === 2 * files.latentChannels
      const mean = isMeanAndVariance ? data.subarray(0, data.length / 2) : data
      return mean.map((value) => (value - files.shiftFactor) * files.scalingFactor)
    },
    decodeLatents({ data, dims }, signal) {
      const latents = data.map((value) => value / files.scalingFactor + files.shiftFactor)
      return only(decoder, { data: latents, dims }, signal)
    },
    async close() {
      await Promise.all(networks.map((network) => network.close()))
    },
  }
}

async function predictAll(
  runtime: Runtime,
  unet: ModelSession,
  { sample, timestep, texts, guidance }: UnetRequest,
  signal: AbortSignal,
): Promise<readonly Float32Array[]> {
  const rows = texts.length
  const isScalar = unet.inputs.some(({ name, dims }) => name === 'timestep' && dims.length === 0)
  const { data } = await runOnce(
    runtime,
    unet,
    {
      sample: stack(texts.map(() => sample)),
      timestep: { data: Float32Array.of(timestep), dims: isScalar ? [] : [1] },
      encoder_hidden_states: stack(texts),
      ...(guidance && {
        timestep_cond: stack(texts.map(() => ({ data: guidance, dims: [1, guidance.length] }))),
      }),
    },
    signal,
  )
  const length = data.length / rows
  return texts.map((_text, row) => data.slice(row * length, (row + 1) * length))
}

function stack(volumes: readonly Volume[]): Volume {
  const length = volumes[0]?.data.length ?? 0
  const data = new Float32Array(length * volumes.length)
  for (const [row, volume] of volumes.entries()) data.set(volume.data, row * length)
  return { data, dims: [volumes.length, ...(volumes[0]?.dims.slice(1) ?? [])] }
}

/** The first output of a run as float32; inputs are converted to the type of the graph. */
async function runOnce(
  runtime: Runtime,
  session: ModelSession,
  volumes: Readonly<Record<string, Volume>>,
  signal: AbortSignal,
): Promise<Volume> {
  const feeds: Record<string, Tensor> = {}
  const output = nameOf(session.outputs)
  try {
    for (const { name, type = 'float32' } of session.inputs) {
      const volume = volumes[name]
      if (volume === undefined) throw new Error(`${session.file}: nothing for the input ${name}`)
      feeds[name] = runtime.tensor(type, convert(volume.data, type), volume.dims)
    }
    const { [output]: tensor } = await session.run(feeds, { [output]: null }, { signal })
    const { data, dims } = tensor as Tensor
    const copy = Float32Array.from(data as unknown as ArrayLike<number>)
    tensor?.dispose()
    return { data: copy, dims }
  } finally {
    for (const tensor of Object.values(feeds)) tensor.dispose()
  }
}

function convert(values: Float32Array, type: NonNullable<TensorSpec['type']>): TensorData {
  if (type === 'float32') return values
  if (type === 'int64') return BigInt64Array.from(values, (value) => BigInt(Math.round(value)))
  const data = allocateElements(type, values.length) as Float32Array
  data.set(values)
  return data
}

function nameOf(specs: readonly TensorSpec[]): string {
  const [first] = specs
  if (first === undefined) throw new Error('the model has no inputs or outputs')
  return first.name
}
