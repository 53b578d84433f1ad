import { openAll } from '#workers/runtime/close-on-failure.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'
import { openSessionPool } from '#workers/runtime/session-pool.ts'

import type { DiffusionFiles } from './diffusion-files.ts'
import { type EncodedPrompt, openPromptEncoder, type PromptEncoder } from './prompt-encoder.ts'
import { runVolumes, stack, type Volume } from './run-volumes.ts'
import { hasFreeSides, openVae, type Vae } from './vae.ts'

/** The networks of Stable Diffusion as functions. All of them stop when the signal aborts. */
export interface Networks
  extends Pick<PromptEncoder, 'encode'>,
    Pick<Vae, 'encodeImage' | 'decodeLatents'> {
  /** The number of images that are worth computing in parallel. */
  readonly poolSize: number
  /** Whether the graphs take images of any size. */
  readonly isResizable: boolean
  /** The U-Net's prediction for each row, in one run where possible. */
  predict(rows: readonly UnetRow[], signal: AbortSignal): Promise<readonly Float32Array[]>
  close(): Promise<void>
}

/** One row of a run of the U-Net: latents under one text. */
export interface UnetRow extends RowCondition {
  /** `[1, channels, height, width]`. */
  readonly sample: Volume
  readonly timestep: number
}

/** What the prediction of a row is made for. */
export interface RowCondition {
  readonly text: EncodedPrompt
  /** `[1, width]`: for distilled models with a guidance input. */
  readonly guidance?: Volume
  /** `[1, 5 or 6]`: the conditions of size of Stable Diffusion XL. */
  readonly timeIds?: Volume
}

/** Loads the networks of a folder. With `isAlone`, a run gets all cores. */
export async function openNetworks(
  runtime: Runtime,
  files: DiffusionFiles,
  options: SessionOptions = {},
  isAlone = () => true,
): Promise<Networks> {
  const networks = await openAll([
    openPromptEncoder(runtime, files, options, isAlone),
    openSessionPool(runtime, files.modelFiles.unet, options),
    openVae(runtime, files, options),
  ])
  const [prompts, unet, vae] = networks
  const sample = unet.wide.inputs.find(({ name }) => name === 'sample')
  const isSplit = sample?.dims[0] === 1
  return {
    poolSize: unet.poolSize,
    isResizable: vae.isResizable && hasFreeSides(unet.wide),
    encode: prompts.encode,
    encodeImage: vae.encodeImage,
    decodeLatents: vae.decodeLatents,
    async predict(rows, signal) {
      const session = unet.choose(isAlone())
      // Exports with a fixed batch size of one run the texts one after another.
      if (!isSplit) return predictAll(runtime, session, rows, signal)
      const predictions: Float32Array[] = []
      for (const row of rows) {
        predictions.push(...(await predictAll(runtime, session, [row], signal)))
      }
      return predictions
    },
    async close() {
      await Promise.all(networks.map((network) => network.close()))
    },
  }
}

async function predictAll(
  runtime: Runtime,
  unet: ModelSession,
  rows: readonly UnetRow[],
  signal: AbortSignal,
): Promise<readonly Float32Array[]> {
  const isScalar = unet.inputs.some(({ name, dims }) => name === 'timestep' && dims.length === 0)
  const all = (choose: (row: UnetRow) => Volume | undefined) =>
    stack(rows.flatMap((row) => choose(row) ?? []))
  const [found] = await runVolumes(
    runtime,
    unet,
    {
      sample: all(({ sample }) => sample),
      timestep: { data: Float32Array.of(rows[0]?.timestep ?? 0), dims: isScalar ? [] : [1] },
      encoder_hidden_states: all(({ text }) => text.states),
      timestep_cond: all(({ guidance }) => guidance),
      text_embeds: all(({ text }) => text.summary),
      time_ids: all(({ timeIds }) => timeIds),
    },
    { signal },
  )
  const { data } = found as Volume
  const length = data.length / rows.length
  return rows.map((_row, at) => data.slice(at * length, (at + 1) * length))
}
