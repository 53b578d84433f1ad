import { isRecord } from '#shared/json.ts'

import type { ImageLayout, ImageSize, Mark, PixelSettings } from './image-layout.ts'
import {
  assertBounded,
  type Json,
  numberOf,
  pixelSettings,
  readCentre,
  recordOf,
  sizeOf,
  wholeImage,
} from './processor-file.ts'

/** How many tokens an image may take, as the request says. */
type Detail = 'low' | 'high'

/** The token of an image before its marks are known, and the text around it. */
export interface Placeholder {
  readonly tokenId: number
  /** Joins the surrounding text of the template, so that it is tokenized together. */
  readonly margin: string
}

/** A family's rules with the numbers of one model. */
export interface VisionRules {
  readonly pixels: PixelSettings
  /** The token id at the positions of embeddings. */
  readonly imageTokenId: number
  /** The text that the chat template writes for an image. */
  readonly placeholder: Placeholder
  layout(size: ImageSize, detail: Detail): ImageLayout
}

/** Reads the rules of a model from config.json and preprocessor_config.json. */
type ReadRules = (config: Json, processor: Json, imageTokensMax: number) => VisionRules

/** Settings of the catalogue for a model. */
export interface VisionOptions {
  readonly maxImageTokens?: number
}

/** Families by `model_type` of config.json. */
const FAMILIES: Readonly<Record<string, ReadRules>> = {
  llava: readLlava,
  idefics3: readTiled,
  smolvlm: readTiled,
  qwen2_vl: readQwen,
  qwen2_5_vl: readQwen,
  qwen3_vl: readQwen,
  gemma3: readGemma,
  llava_onevision: readOneVision,
}

/** Unsupported families, with the reason. */
const REFUSED: Readonly<Record<string, string>> = {
  florence2: 'it writes with an encoder and a decoder that attends to it',
  mllama: 'images enter its layers by cross-attention',
  paligemma: 'its prompts are attended to in both directions, and it has no chats',
}

/** The rules of a model. Throws an `Error` that names missing settings. */
export function rulesOf(
  config: Json,
  processor: Json,
  { maxImageTokens }: VisionOptions = {},
): VisionRules {
  const type = String(config.model_type)
  const read = Object.hasOwn(FAMILIES, type) ? FAMILIES[type] : undefined
  if (maxImageTokens !== undefined && read !== undefined && read !== readQwen) {
    throw new Error(`"maxImageTokens" changes nothing for model_type "${type}"`)
  }
  if (read !== undefined) return read(config, processor, maxImageTokens ?? IMAGE_TOKENS_MAX)
  const reason = Object.hasOwn(REFUSED, type) ? REFUSED[type] : undefined
  if (reason !== undefined) {
    throw new Error(`config.json: images are not read for model_type "${type}": ${reason}`)
  }
  const known = Object.keys(FAMILIES).join(', ')
  throw new Error(`config.json: images are not read for model_type "${type}", only for ${known}`)
}

/** LLaVA 1.5: the centre of the image, as CLIP reads it. */
function readLlava(config: Json, processor: Json): VisionRules {
  const centre = readCentre(processor)
  const vision = recordOf(config, 'vision_config')
  const patches = (numberOf(vision, 'image_size') / numberOf(vision, 'patch_size')) ** 2
  const isWhole = config.vision_feature_select_strategy === 'full'
  const embeddings = numberOf(config, 'image_seq_length', isWhole ? patches + 1 : patches)
  return {
    pixels: pixelSettings(processor),
    ...imageTokensOf(config),
    layout: (size) => centre(size, [{ embeddings }]),
  }
}

const LONGEST_EDGE_MAX = 4096 // pixels, as in the processors of these families
const FAKE = '<fake_token_around_image>'

/** Idefics3 and SmolVLM: tiles of a large image, and all of it in the size of a tile. */
function readTiled(config: Json, processor: Json): VisionRules {
  const longest = numberOf(recordOf(processor, 'size'), 'longest_edge')
  const side = numberOf(recordOf(processor, 'max_image_size'), 'longest_edge')
  const vision = recordOf(config, 'vision_config')
  const patches = (numberOf(vision, 'image_size') / numberOf(vision, 'patch_size')) ** 2
  const embeddings = patches / numberOf(config, 'scale_factor') ** 2
  const splits = processor.do_image_splitting !== false
  const tile = { width: side, height: side }
  const upTo = (length: number): number => Math.ceil(length / side) * side
  const overview: readonly Mark[] = [`${FAKE}<global-img>`, { embeddings }, FAKE]
  return {
    pixels: pixelSettings(processor),
    ...imageTokensOf(config),
    layout(size, detail) {
      const first = withLongest(size, longest)
      if (!splits || detail === 'low') {
        const sizes = [first, tile]
        return { sizes, tiles: [{ x: 0, y: 0 }], tile, hasOverview: false, marks: overview }
      }
      const ratio = first.width / first.height
      const isWide = first.width >= first.height
      const width = isWide ? upTo(first.width) : upTo(Math.trunc(upTo(first.height) * ratio))
      const height = isWide ? upTo(Math.trunc(width / ratio)) : upTo(first.height)
      const sizes = [first, { width, height }]
      const [rows, columns] = [height / side, width / side]
      const places = Array.from({ length: rows * columns }, (_, at) => {
        return { x: (at % columns) * side, y: Math.floor(at / columns) * side }
      })
      if (places.length === 1) {
        return { sizes, tiles: places, tile, hasOverview: false, marks: overview }
      }
      const lines = Array.from({ length: rows }, (_, row) => [
        ...Array.from({ length: columns }, (__, column): Mark[] => {
          return [`${FAKE}<row_${row + 1}_col_${column + 1}>`, { embeddings }]
        }).flat(),
        row === rows - 1 ? '\n\n' : '\n',
      ])
      const marks = [...lines.flat(), ...overview]
      return { sizes, tiles: places, tile, hasOverview: true, marks }
    },
  }
}

/** The size whose longer side is given; an even number of pixels on the shorter one. */
function withLongest({ width, height }: ImageSize, longest: number): ImageSize {
  const ratio = width / height
  const even = (length: number): number => Math.max(length + (length % 2), 1)
  const resized =
    width >= height
      ? { width: longest, height: even(Math.trunc(longest / ratio)) }
      : { width: even(Math.trunc(longest * ratio)), height: longest }
  if (Math.max(resized.width, resized.height) <= LONGEST_EDGE_MAX) return resized
  throw new Error(`preprocessor_config.json: "longest_edge" is more than ${LONGEST_EDGE_MAX}`)
}

// An encoder relates all patches of an image to each other: sixteen times the work for twice the
// width. Files of these families allow ten times as many tokens; their code defaults to this many.
const IMAGE_TOKENS_MAX = 1280
const LOW_DETAIL_EMBEDDINGS = 256

/** Qwen2-VL to Qwen3-VL: the image at about its own size, whose patches the encoder reads. */
function readQwen(config: Json, processor: Json, imageTokensMax: number): VisionRules {
  const side = numberOf(processor, 'patch_size', 14)
  const merge = numberOf(processor, 'merge_size', 2)
  const frames = numberOf(processor, 'temporal_patch_size', 2)
  const size = isRecord(processor.size) ? processor.size : {}
  // Older files state numbers of pixels, which take precedence if both exist.
  const leastOfSize = numberOf(size, 'shortest_edge', numberOf(size, 'min_pixels', 56 * 56))
  const mostOfSize = numberOf(size, 'longest_edge', numberOf(size, 'max_pixels', 28 * 28 * 1280))
  const least = numberOf(processor, 'min_pixels', leastOfSize)
  const factor = side * merge
  const mostPixels = numberOf(processor, 'max_pixels', mostOfSize)
  const most = Math.max(Math.min(mostPixels, imageTokensMax * factor ** 2), least)
  return {
    pixels: { ...pixelSettings(processor), patch: { side, merge, frames } },
    ...imageTokensOf(config),
    layout(image, detail) {
      const low = Math.max(Math.min(most, LOW_DETAIL_EMBEDDINGS * factor ** 2), least)
      const tile = smartResize(image, factor, least, detail === 'low' ? low : most)
      const grid = { rows: tile.height / factor, columns: tile.width / factor }
      const marks = [{ embeddings: grid.rows * grid.columns }]
      return { sizes: [tile], tiles: [{ x: 0, y: 0 }], tile, hasOverview: false, marks, grid }
    },
  }
}

/** Gemma 3: the whole image in one size, between two tokens and blank lines. */
function readGemma(config: Json, processor: Json): VisionRules {
  if (processor.do_pan_and_scan === true) {
    throw new Error('preprocessor_config.json: "do_pan_and_scan" is not supported')
  }
  const embeddings = numberOf(config, 'mm_tokens_per_image', 256)
  const [first, last] = [tokenOf(config, 'boi'), tokenOf(config, 'eoi')]
  const tile = sizeOf(processor)
  const marks = [{ tokenId: first }, { embeddings }, { tokenId: last }]
  return {
    pixels: pixelSettings(processor),
    imageTokenId: tokenOf(config, 'image'),
    placeholder: { tokenId: first, margin: '\n\n' },
    layout: () => wholeImage(tile, marks),
  }
}

/**
 * LLaVA-OneVision: the whole image in one size. Its tiles of larger images end with an embedding
 * (`image_newline`) that its exports do not contain.
 */
function readOneVision(config: Json, processor: Json): VisionRules {
  const vision = recordOf(config, 'vision_config')
  const patches = Math.floor(numberOf(vision, 'image_size') / numberOf(vision, 'patch_size'))
  const tile = sizeOf(processor)
  return {
    pixels: pixelSettings(processor),
    ...imageTokensOf(config),
    layout: () => wholeImage(tile, [{ embeddings: patches ** 2 }]),
  }
}

/** The nearest size of whole patches whose area is within bounds. */
function smartResize(
  { width, height }: ImageSize,
  factor: number,
  least: number,
  most: number,
): ImageSize {
  assertBounded({ width, height })
  const whole = (length: number, round: (x: number) => number): number => {
    return Math.max(round(length / factor), 1) * factor
  }
  const near = {
    width: roundHalfEven(width / factor) * factor,
    height: roundHalfEven(height / factor) * factor,
  }
  if (near.width * near.height > most) {
    const shrink = Math.sqrt((height * width) / most)
    return {
      width: whole(width / shrink, Math.floor),
      height: whole(height / shrink, Math.floor),
    }
  }
  if (near.width * near.height >= least) return near
  const grow = Math.sqrt(least / (height * width))
  return { width: whole(width * grow, Math.ceil), height: whole(height * grow, Math.ceil) }
}

/** Rounds like Python. */
function roundHalfEven(value: number): number {
  const floor = Math.floor(value)
  if (value - floor !== 0.5) return Math.round(value)
  return floor % 2 === 0 ? floor : floor + 1
}

/** Templates of most families write the token that is used for embeddings. */
function imageTokensOf(config: Json): Pick<VisionRules, 'imageTokenId' | 'placeholder'> {
  const tokenId = tokenOf(config, 'image')
  return { imageTokenId: tokenId, placeholder: { tokenId, margin: '' } }
}

/** Configurations have one of two names for an id. */
function tokenOf(config: Json, name: string): number {
  return numberOf(config, `${name}_token_id`, numberOf(config, `${name}_token_index`, -1))
}
