import { existsSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'

import { WEIGHT_SUFFIXES } from '#workers/models/choose-files.ts'
import { countIn, readJson } from '#workers/models/folder-json.ts'
import { graphInside, pathInside } from '#workers/models/inside-folder.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

/** A text encoder and the folder of its tokenizer. */
interface TextFiles {
  readonly graph: string
  readonly tokenizer: string
}

/** Additions of Stable Diffusion XL to the older ones. */
export interface XlFiles {
  /** The size conditions end with the size itself, or with an aesthetic score. */
  readonly sizeConditions: 'size' | 'aesthetics'
  /** An empty text is encoded as zeros instead of by the text encoder. */
  readonly isEmptyTextZero: boolean
}

/** The content of a Stable Diffusion folder's configuration files. */
export interface DiffusionFiles {
  readonly scheduler: Record<string, unknown>
  /** The U-Net attends to all of them; the last one also summarizes the text for XL. */
  readonly texts: readonly [TextFiles, ...TextFiles[]]
  readonly modelFiles: Readonly<Record<'unet' | 'decoder' | 'encoder', string>>
  readonly xl: XlFiles | undefined
  /** Latents per side of the square that the model was trained on. */
  readonly latentSize: number
  /** Both sides of an image in latents are multiples of this. */
  readonly latentStep: number
  readonly latentChannels: number
  /** Inpainting models take mask and masked image beside the latents: 9 channels instead of 4. */
  readonly unetChannels: number
  /** Pixels per latent along one side. */
  readonly vaeFactor: number
  /** Pixels per side of the largest square that the VAE computes at once. */
  readonly tileSize: number
  readonly scalingFactor: number
  readonly shiftFactor: number
  /** Statistics by channel, for VAEs whose latents are normalized. */
  readonly latentStatistics: LatentStatistics | undefined
  /** Width of the guidance embedding of distilled models. */
  readonly guidanceWidth: number | undefined
}

/** Mean and standard deviation of each channel of latents. */
interface LatentStatistics {
  readonly mean: readonly number[]
  readonly std: readonly number[]
}

type Json = Record<string, unknown>

const PIPELINES =
  /^(ORT|Onnx)?(StableDiffusion(XL)?(Img2Img|Inpaint|InpaintLegacy)?|LatentConsistencyModel(Img2Img)?)Pipeline$/
const XL = /StableDiffusionXL/
const MODEL_NAMES = WEIGHT_SUFFIXES.precise.map((suffix) => `model${suffix}.onnx`)
// Larger than in any published model; tensors of these sizes still fit into memory.
const LATENT_SIZE_MAX = 512
const VAE_SIZE_MAX = 8192
const CHANNELS_MAX = 64
const BLOCKS = 4 // of the first exports
const BLOCKS_MAX = 8
const GUIDANCE_WIDTH_MAX = 65_536
// The factor of published models, if the file states none.
const SCALING_FACTOR = 0.18215
const XL_SCALING_FACTOR = 0.13025

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
  const isXl = XL.test(className)
  const latentSize = count(unet, 'sample_size', 64, LATENT_SIZE_MAX)
  const vaeFactor = 2 ** (blocksOf(folder, vae, 'VAE') - 1)
  return {
    scheduler: await readPythonJson(folder, 'scheduler/scheduler_config.json'),
    texts: await findTexts(folder, isXl ? index : undefined),
    xl: isXl ? parseXl(index) : undefined,
    modelFiles: {
      unet: await findGraph(folder, 'unet'),
      decoder: await findGraph(folder, 'vae_decoder'),
      encoder: await findGraph(folder, 'vae_encoder'),
    },
    latentSize,
    latentStep: 2 ** blocksOf(folder, unet, 'U-Net'),
    latentChannels,
    unetChannels,
    vaeFactor,
    // Some VAEs state the size of their own training, which is smaller than they support.
    tileSize: Math.max(latentSize * vaeFactor, count(vae, 'sample_size', 1, VAE_SIZE_MAX)),
    scalingFactor: numberOr(vae.scaling_factor, isXl ? XL_SCALING_FACTOR : SCALING_FACTOR),
    shiftFactor: numberOr(vae.shift_factor, 0),
    latentStatistics: statisticsOf(folder, vae, latentChannels),
    guidanceWidth:
      typeof unet.time_cond_proj_dim === 'number'
        ? count(unet, 'time_cond_proj_dim', 1, GUIDANCE_WIDTH_MAX)
        : undefined,
  }
}

/**
 * The text encoders: one, or those of Stable Diffusion XL that its index does not mark as absent,
 * as its refiner does with the first.
 */
async function findTexts(folder: string, index?: Json): Promise<DiffusionFiles['texts']> {
  const find = async (suffix: string): Promise<TextFiles> => ({
    graph: await findGraph(folder, `text_encoder${suffix}`),
    tokenizer: await pathInside(folder, `tokenizer${suffix}`),
  })
  if (index === undefined) return [await find('')]
  const [, first] = Array.isArray(index.text_encoder) ? index.text_encoder : []
  const second = await find('_2')
  return first === null ? [second] : [await find(''), second]
}

function parseXl(index: Json): XlFiles {
  return {
    sizeConditions: index.requires_aesthetics_score === true ? 'aesthetics' : 'size',
    isEmptyTextZero: index.force_zeros_for_empty_prompt !== false,
  }
}

function blocksOf(folder: string, { block_out_channels: channels }: Json, network: string): number {
  const blocks = Array.isArray(channels) ? channels.length : BLOCKS
  if (blocks >= 1 && blocks <= BLOCKS_MAX) return blocks
  throw new ModelLoadError(folder, `a ${network} with ${blocks} blocks is not supported`)
}

function statisticsOf(folder: string, vae: Json, channels: number): LatentStatistics | undefined {
  const { latents_mean: mean, latents_std: std } = vae
  if (!Array.isArray(mean) || !Array.isArray(std)) return undefined
  const isPerChannel = [mean, std].every(
    (values) => values.length === channels && values.every(Number.isFinite),
  )
  if (isPerChannel && !std.includes(0)) return { mean, std }
  throw new ModelLoadError(
    folder,
    `latents_mean and latents_std must be ${channels} numbers each, no deviation 0`,
  )
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
