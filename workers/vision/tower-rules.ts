import { isRecord } from '#shared/json.ts'
import { findJson, readJson } from '#workers/models/folder-json.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

import type { ImageLayout, ImageSize, PixelSettings } from './image-layout.ts'
import { withUsualNames } from './processor-classes.ts'
import { type Json, pixelSettings, readCentre, sizeOf, wholeImage } from './processor-file.ts'

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
  const { patch_size: own = usual } = vision
  // Hiera has a side for each axis.
  const side = Number(Array.isArray(own) ? own[0] : own)
  if (!(side >= 1)) throw new Error('config.json: "patch_size" is not a number of pixels')
  return {
    pixels: pixelSettings(processor),
    tokensPerImage: Math.floor(tile.width / side) * Math.floor(tile.height / side),
    layout: (size) => read(size, []),
  }
}
