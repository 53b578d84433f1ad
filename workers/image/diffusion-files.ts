import { existsSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'

import { WEIGHT_SUFFIXES } from '#workers/models/choose-files.ts'
import { countIn, readJson } from '#workers/models/folder-json.ts'
import { graphInside } from '#workers/models/inside-folder.ts'
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
// Larger than those of any published model; tensors of these sizes still fit into memory.
const LATENT_SIZE_MAX = 512
const CHANNELS_MAX = 64
const BLOCKS_MAX = 8
const GUIDANCE_WIDTH_MAX = 65_536
const SCALING_FACTOR = 0.18215 // of Stable Diffusion 1, when the file has none

/** Reads a folder by its `model_index.json`. Throws `ModelLoadError` for any other layout. */
export async function readDiffusionFiles(folder: string): Promise<DiffusionFiles> {
  const index = await readPythonJson(folder, 'model_index.json')
  const className = String(index._class_name)
  if (!PIPELINES.test(className)) {
    throw new ModelLoadError(folder, `pipelines of the class ${className} are not supported`)
  }
  // The first exports contain only the graphs; their defaults are those of Stable Diffusion 1.
  const readConfig = async (part: string): Promise<Json> => {
    const isBare = className.startsWith('Onnx') && !existsSync(join(folder, part, 'config.json'))
    return isBare ? {} : readPythonJson(folder, `${part}/config.json`)
  }
  const unet = await readConfig('unet')
  const vae = await readConfig('vae_decoder')
  const count = (config: Json, name: string, fallback: number, max: number): number =>
    countIn(folder, config, name, { fallback, max })
  const latentChannels = count(vae, 'latent_channels', 4, CHANNELS_MAX)
  const unetChannels = count(unet, 'in_channels', 4, 2 * CHANNELS_MAX + 1)
  if (unetChannels !== latentChannels && unetChannels !== 2 * latentChannels + 1) {
    throw new ModelLoadError(folder, `a U-Net with ${unetChannels} input channels is not supported`)
  }
  const blocks = Array.isArray(vae.block_out_channels) ? vae.block_out_channels.length : 4
  if (blocks < 1 || blocks > BLOCKS_MAX) {
    throw new ModelLoadError(folder, `a VAE with ${blocks} blocks is not supported`)
  }
  return {
    scheduler: await readPythonJson(folder, 'scheduler/scheduler_config.json'),
    modelFiles: {
      text: await findGraph(folder, 'text_encoder'),
      unet: await findGraph(folder, 'unet'),
      decoder: await findGraph(folder, 'vae_decoder'),
      encoder: await findGraph(folder, 'vae_encoder'),
    },
    latentSize: count(unet, 'sample_size', 64, LATENT_SIZE_MAX),
    latentChannels,
    unetChannels,
    vaeFactor: 2 ** (blocks - 1),
    scalingFactor: numberOr(vae.scaling_factor, SCALING_FACTOR),
    shiftFactor: numberOr(vae.shift_factor, 0),
    guidanceWidth:
      typeof unet.time_cond_proj_dim === 'number'
        ? count(unet, 'time_cond_proj_dim', 1, GUIDANCE_WIDTH_MAX)
        : undefined,
  }
}

async function findGraph(folder: string, part: string): Promise<string> {
  const present = new Set(await readdir(join(folder, part)).catch(() => []))
  const name = MODEL_NAMES.find((wanted) => present.has(wanted))
  if (name === undefined) throw new ModelLoadError(folder, `${part}/model.onnx is missing`)
  return graphInside(folder, join(part, name))
}

/** Python writes NaN and Infinity, which JSON does not allow. */
function readPythonJson(folder: string, name: string): Promise<Json> {
  return readJson(folder, name, (text) =>
    text.replaceAll(/(:\s*)(?:-?Infinity|NaN)(?=\s*[,}])/g, '$1null'),
  )
}

function numberOr(value: unknown, fallback: number): number {
  return typeof value === 'number' ? value : fallback
}
