import { openAll } from '#workers/runtime/close-on-failure.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'

import type { DiffusionFiles } from './diffusion-files.ts'
import { openPromptEncoder, type PromptEncoder } from './prompt-encoder.ts'
import { openUnet, type Unet, type UnetOptions } from './unet.ts'
import { openVae, type Vae } from './vae.ts'

/** The networks of Stable Diffusion as functions, which stop when the signal aborts. */
export interface Networks
  extends Pick<PromptEncoder, 'encode'>,
    Pick<Vae, 'encodeImage' | 'decodeLatents'>,
    Pick<Unet, 'predict' | 'poolSize'> {
  /** Whether the graphs take images of any size. */
  readonly isResizable: boolean
  close(): Promise<void>
}

/** Loads the networks of a folder. With `isAlone`, a text is encoded on all cores. */
export async function openNetworks(
  runtime: Runtime,
  files: DiffusionFiles,
  session: SessionOptions = {},
  options: Pick<UnetOptions, 'onBatch'> & { readonly isAlone?: () => boolean } = {},
): Promise<Networks> {
  const { isAlone = () => true, ...rest } = options
  const nativeLatents = files.latentSize ** 2
  const networks = await openAll([
    openPromptEncoder(runtime, files, session, isAlone),
    openUnet(runtime, files.modelFiles.unet, session, { nativeLatents, ...rest }),
    openVae(runtime, files, session),
  ])
  const [prompts, unet, vae] = networks
  return {
    poolSize: unet.poolSize,
    isResizable: vae.isResizable && unet.isResizable,
    encode: prompts.encode,
    predict: unet.predict,
    encodeImage: vae.encodeImage,
    decodeLatents: vae.decodeLatents,
    async close() {
      await Promise.all(networks.map((network) => network.close()))
    },
  }
}
