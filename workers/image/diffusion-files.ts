import { existsSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'

import { WEIGHT_SUFFIXES } from '#workers/models/choose-files.ts'
import { readModelText } from '#workers/models/folder-json.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

/** The content of a Stable Diffusion folder's configuration files. */
export interface DiffusionFiles {
  readonly scheduler: Record<string, unknown>
  readonly modelFiles: Readonly<Record<'text' | 'unet' | 'decoder' | 'encoder', string>>
  /** Latents per side of the square that the model was trained on. */
  readonly latentSize: number
  readonly latentChannels: number
  /** Inpainting models take mask and masked image beside the latents: 9 channels instead of 4. */
  readonly unetChannels: number
  /** Pixels per latent along one side. */
  readonly vaeFactor: number
  readonly scalingFactor: number
  readonly shiftFactor: number
  /** Width of the guidance embedding of distilled models. */
  readonly guidanceWidth: number | undefined
}

type Json = Record<string, unknown>

const PIPELINES =
  /^(ORT|Onnx)?(StableDiffusion(Img2Img|Inpaint|InpaintLegacy)?|LatentConsistencyModel(Img2Img)?)Pipeline$/
const MODEL_NAMES = WEIGHT_SUFFIXES.precise.map((suffix) => `model${suffix}.onnx`)
const SCALING_FACTOR = 0.18215 // of Stable Diffusion 1, when the file has none

/** Reads a folder by its `model_index.json`. Throws `ModelLoadError` for any other layout. */
export async function readDiffusionFiles(folder: string): Promise<DiffusionFiles> {
  const index = await readJson(folder, 'model_index.json')
  const className = String(index._class_name)
  if (!PIPELINES.test(className)) {
    throw new ModelLoadError(folder, `pipelines of the class ${className} are not supported`)
  }
  // The first exports contain only the graphs; their defaults are those of Stable Diffusion 1.
  const readConfig = async (part: string): Promise<Json> => {
    const isBare = className.startsWith('Onnx') && !existsSync(join(folder, part, 'config.json'))
    return isBare ? {} : readJson(folder, part, 'config.json')
  }
  const unet = await readConfig('unet')
  const vae = await readConfig('vae_decoder')
  const latentChannels = numberOr(vae.latent_channels, 4)
  const unetChannels = numberOr(unet.in_channels, 4)
  if (unetChannels !== latentChannels && unetChannels !== 2 * latentChannels + 1) {
    throw new ModelLoadError(folder, `a U-Net with ${unetChannels} input channels is not supported`)
  }
  const blocks = Array.isArray(vae.block_out_channels) ? vae.block_out_channels.length : 4
  return {
    scheduler: await readJson(folder, 'scheduler', 'scheduler_config.json'),
    modelFiles: {
      text: await findGraph(folder, 'text_encoder'),
      unet: await findGraph(folder, 'unet'),
      decoder: await findGraph(folder, 'vae_decoder'),
      encoder: await findGraph(folder, 'vae_encoder'),
    },
    latentSize: numberOr(unet.sample_size, 64),
    latentChannels,
    unetChannels,
    vaeFactor: 2 ** (blocks - 1),
    scalingFactor: numberOr(vae.scaling_factor, SCALING_FACTOR),
    shiftFactor: numberOr(vae.shift_factor, 0),
    guidanceWidth:
      typeof unet.time_cond_proj_dim === 'number' ? unet.time_cond_proj_dim : undefined,
  }
}

async function findGraph(folder: string, part: string): Promise<string> {
  const present = new Set(await readdir(join(folder, part)).catch(() => []))
  const name = MODEL_NAMES.find((wanted) => present.has(wanted))
  if (name === undefined) throw new ModelLoadError(folder, `${part}/model.onnx is missing`)
  return join(folder, part, name)
}

async function readJson(folder: string, ...path: string[]): Promise<Json> {
  try {
    const text = await readModelText(join(folder, ...path))
    // Python writes NaN and Infinity, which JSON does not allow.
    return JSON.parse(text.replaceAll(/(?<=:\s*)(-?Infinity|NaN)(?=\s*[,}])/g, 'null'))
  } catch (error) {
    if (error instanceof ModelLoadError) throw error
    throw new ModelLoadError(folder, `${path.join('/')} is missing or no JSON`)
  }
}

function numberOr(value: unknown, fallback: number): number {
  return typeof value === 'number' ? value : fallback
}
