import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

import { ModelLoadError } from '#workers/runtime/errors.ts'

/** What the files of a Stable Diffusion folder say. */
export interface DiffusionFiles {
  readonly scheduler: Record<string, unknown>
  readonly modelFiles: Readonly<Record<'text' | 'unet' | 'decoder' | 'encoder', string>>
  /** Latents per side of the square that the model was trained on. */
  readonly latentSize: number
  readonly latentChannels: number
  /** Inpainting models take the mask and the masked picture beside the latents: 9 instead of 4. */
  readonly unetChannels: number
  /** Pixels per latent along one side. */
  readonly vaeFactor: number
  readonly scalingFactor: number
  readonly shiftFactor: number
  /** Width of the guidance embedding of distilled models. */
  readonly guidanceWidth: number | undefined
}

type Json = Record<string, unknown>

const PIPELINES = /StableDiffusion|LatentConsistency/
const SCALING_FACTOR = 0.18215 // of the first Stable Diffusion, where the file is silent

/** Reads a folder by its `model_index.json`. Throws `ModelLoadError` for any other layout. */
export async function readDiffusionFiles(folder: string): Promise<DiffusionFiles> {
  const index = await readJson(folder, 'model_index.json')
  const className = String(index._class_name)
  if (!PIPELINES.test(className) || className.includes('XL')) {
    throw new ModelLoadError(folder, `pipelines of the class ${className} are not supported`)
  }
  const unet = await readJson(folder, 'unet', 'config.json')
  const vae = await readJson(folder, 'vae_decoder', 'config.json')
  const blocks = Array.isArray(vae.block_out_channels) ? vae.block_out_channels.length : 4
  return {
    scheduler: await readJson(folder, 'scheduler', 'scheduler_config.json'),
    modelFiles: {
      text: join(folder, 'text_encoder', 'model.onnx'),
      unet: join(folder, 'unet', 'model.onnx'),
      decoder: join(folder, 'vae_decoder', 'model.onnx'),
      encoder: join(folder, 'vae_encoder', 'model.onnx'),
    },
    latentSize: numberOr(unet.sample_size, 64),
    latentChannels: numberOr(vae.latent_channels, 4),
    unetChannels: numberOr(unet.in_channels, 4),
    vaeFactor: 2 ** (blocks - 1),
    scalingFactor: numberOr(vae.scaling_factor, SCALING_FACTOR),
    shiftFactor: numberOr(vae.shift_factor, 0),
    guidanceWidth:
      typeof unet.time_cond_proj_dim === 'number' ? unet.time_cond_proj_dim : undefined,
  }
}

async function readJson(folder: string, ...path: string[]): Promise<Json> {
  try {
    return JSON.parse(await readFile(join(folder, ...path), 'utf8'))
  } catch {
    throw new ModelLoadError(folder, `${path.join('/')} is missing or no JSON`)
  }
}

function numberOr(value: unknown, fallback: number): number {
  return typeof value === 'number' ? value : fallback
}
