import { isRecord } from '#shared/json.ts'

import type { ImageLayout, ImageSize, Mark, PixelSettings } from './image-layout.ts'
import type { KernelName } from './resample.ts'

/** A parsed file of settings. */
export type Json = Readonly<Record<string, unknown>>

const KERNEL_CODES: Readonly<Record<number, KernelName>> = {
  0: 'nearest',
  1: 'lanczos',
  2: 'bilinear',
  3: 'bicubic',
  4: 'box',
  5: 'hamming',
}

/** The conversion of pixels to numbers in `preprocessor_config.json`. */
export function pixelSettings(processor: Json): PixelSettings {
  const kernel = KERNEL_CODES[numberOf(processor, 'resample', 3)]
  if (kernel === undefined) throw new Error('preprocessor_config.json: unknown "resample"')
  return {
    kernel,
    scale: processor.do_rescale === false ? 1 : numberOf(processor, 'rescale_factor', 1 / 255),
    mean: processor.do_normalize === false ? [0, 0, 0] : channelsOf(processor, 'image_mean'),
    std: processor.do_normalize === false ? [1, 1, 1] : channelsOf(processor, 'image_std'),
    ...(processor.do_flip_channel_order === true && { isBlueFirst: true }),
  }
}

/** A layout of one tile by the size of an image, with given marks. */
type ReadTile = (size: ImageSize, marks: readonly Mark[]) => ImageLayout

/**
 * The centre of an image that is resized by its shorter side, as CLIP reads it, or to both sides
 * that the file states, as DeiT does.
 */
export function readCentre(processor: Json): ReadTile {
  const tile = squareOr(processor.crop_size) ?? sizeOf(processor, 'crop_size')
  const sides = sidesOf(processor.size)
  const least = Math.max(tile.width, tile.height)
  const shortest =
    squareOr(processor.size)?.width ??
    (sides && Math.min(sides.width, sides.height)) ??
    numberOf(recordOf(processor, 'size'), 'shortest_edge', least)
  if (shortest < least) {
    throw new Error('preprocessor_config.json: "crop_size" is larger than "size"')
  }
  return ({ width, height }, marks) => {
    const long = Math.trunc((shortest * Math.max(width, height)) / Math.min(width, height))
    const resized =
      sides ??
      (width <= height ? { width: shortest, height: long } : { width: long, height: shortest })
    assertBounded({ width, height })
    const x = Math.floor((resized.width - tile.width) / 2)
    const y = Math.floor((resized.height - tile.height) / 2)
    return { sizes: [resized], tiles: [{ x, y }], tile, hasOverview: false, marks }
  }
}

/** Older files have one number for both sides. */
function squareOr(side: unknown): ImageSize | undefined {
  return typeof side === 'number' ? { width: side, height: side } : undefined
}

/** Both sides, if a size states them. */
export function sidesOf(size: unknown): ImageSize | undefined {
  if (!isRecord(size) || typeof size.height !== 'number' || typeof size.width !== 'number') return
  return { width: size.width, height: size.height }
}

/** The whole image in the size of a tile, regardless of its aspect ratio. */
export function wholeImage(tile: ImageSize, marks: readonly Mark[]): ImageLayout {
  return { sizes: [tile], tiles: [{ x: 0, y: 0 }], tile, hasOverview: false, marks }
}

/** Width and height as a file names them. */
export function sizeOf(processor: Json, name = 'size'): ImageSize {
  const square = squareOr(processor[name])
  if (square !== undefined) return square
  const size = recordOf(processor, name)
  return { width: numberOf(size, 'width'), height: numberOf(size, 'height') }
}

const RATIO_MAX = 200

/** An image that is much longer than wide. */
export class ImageShapeError extends Error {}

/** Throws for shapes that encoders do not support; a line of pixels would become a huge image. */
export function assertBounded({ width, height }: ImageSize): void {
  if (Math.max(width, height) <= RATIO_MAX * Math.min(width, height)) return
  throw new ImageShapeError(`one side is more than ${RATIO_MAX} times as long as the other`)
}

/** An object of a file. Throws an `Error` that names it. */
export function recordOf(record: Json, name: string): Json {
  const value = record[name]
  if (isRecord(value)) return value
  throw new Error(`the model's configuration has no "${name}"`)
}

/** A number of a file. Throws an `Error` that names it if it is missing and has no fallback. */
export function numberOf(record: Json, name: string, fallback?: number): number {
  const value = record[name] ?? fallback
  if (typeof value === 'number' && Number.isFinite(value)) return value
  throw new Error(`the model's configuration has no number "${name}"`)
}

function channelsOf(record: Json, name: string): readonly number[] {
  const value = record[name]
  if (Array.isArray(value) && value.length === 3 && value.every(Number.isFinite)) return value
  throw new Error(`preprocessor_config.json: "${name}" must be three numbers`)
}
