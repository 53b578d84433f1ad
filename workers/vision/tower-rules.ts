import { isRecord } from '#shared/json.ts'
import { findJson, readJson } from '#workers/models/folder-json.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

import type { ImageLayout, ImageSize, PixelSettings } from './image-layout.ts'
import {
  type Json,
  numberOf,
  pixelSettings,
  readCentre,
  recordOf,
  sizeOf,
  wholeImage,
} from './processor-file.ts'

/** How a model reads an image that it embeds or classifies. */
export interface TowerRules {
  readonly pixels: PixelSettings
  /** The number of tokens that an image counts as: the patches that the model reads. */
  readonly tokensPerImage: number
  layout(size: ImageSize): ImageLayout
}

/** The rules of CLIP, SigLIP, ViT and similar models. Throws `ModelLoadError` for others. */
export async function readTowerRules(folder: string): Promise<TowerRules> {
  const processor = await readJson(folder, 'preprocessor_config.json')
  const config = (await findJson(folder, 'config.json')) ?? {}
  try {
    return rulesOf(config, withUsualNames(processor))
  } catch (error) {
    throw new ModelLoadError(folder, (error as Error).message)
  }
}

/**
 * The same rules under the names of CLIP's processor. Throws an `Error` for unsupported settings.
 */
function withUsualNames(processor: Json): Json {
  const type = processor.image_processor_type ?? processor.feature_extractor_type
  if (type === 'JinaCLIPImageProcessor') return withNamesOfJina(processor)
  return /^ConvNext/.test(String(type)) ? withNamesOfConvNext(processor) : processor
}

/** ConvNeXt crops the margins of images below a side of 384, and squeezes larger ones. */
function withNamesOfConvNext({ crop_pct: share, ...processor }: Json): Json {
  const { size } = processor
  const side =
    typeof size === 'number' ? size : numberOf(recordOf(processor, 'size'), 'shortest_edge')
  if (side >= 384) return { ...processor, size: side, do_center_crop: false }
  const shortest = Math.trunc(side / (typeof share === 'number' ? share : 224 / 256))
  return { ...processor, size: shortest, crop_size: side, do_center_crop: true }
}

function withNamesOfJina(processor: Json): Json {
  const { size, mean, std, resize_mode: mode, interpolation } = processor
  if (mode !== 'shortest' || interpolation !== 'bicubic') {
    throw new Error(
      'preprocessor_config.json: only "resize_mode": "shortest" and "interpolation": "bicubic" are supported',
    )
  }
  return { size, crop_size: size, image_mean: mean, image_std: std, resample: 3 }
}

const PATCH_SIDES: Readonly<Record<string, number>> = { siglip: 16, siglip2: 16 }
// The patch side of CLIP; convolutions also reduce as many pixels to one position.
const PATCH_SIDE = 32

function rulesOf(config: Json, processor: Json): TowerRules {
  if (processor.do_resize === false) {
    throw new Error('preprocessor_config.json: "do_resize": false is not supported')
  }
  // Either images are cropped, or squeezed regardless of their aspect ratio.
  const isCropped = processor.do_center_crop ?? processor.crop_size !== undefined
  const read = isCropped === true ? readCentre(processor) : () => wholeImage(sizeOf(processor), [])
  const { tile } = read({ width: 1, height: 1 }, [])
  const vision = isRecord(config.vision_config) ? config.vision_config : config
  const usual = PATCH_SIDES[String(config.model_type)] ?? PATCH_SIDE
  const side = numberOf(vision, 'patch_size', usual)
  return {
    pixels: pixelSettings(processor),
    tokensPerImage: Math.floor(tile.width / side) * Math.floor(tile.height / side),
    layout: (size) => read(size, []),
  }
}
