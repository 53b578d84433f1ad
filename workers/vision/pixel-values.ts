import type { Pixels } from '#workers/image/pixels.ts'

import type { ImageLayout, ImageSize, PixelSettings } from './image-layout.ts'
import { resample } from './resample.ts'

/** The pixels that an encoder reads, and the shape of their tensor. */
export interface PixelValues {
  readonly data: Float32Array
  /** [tiles, 3, height, width], or [patches, values] for encoders that read patches. */
  readonly dims: readonly number[]
  /** Rows and columns of patches. */
  readonly grid?: readonly [number, number]
}

/** Computes the encoder's input of an image. This takes long, so run it in a thread. */
export function pixelValues(
  image: Pixels,
  layout: ImageLayout,
  settings: PixelSettings,
): PixelValues {
  const { kernel } = settings
  const resized = layout.sizes.reduce<Pixels>(
    (pixels, size) => resample(pixels, size, kernel),
    image,
  )
  const tiles = layout.tiles.map((place) => crop(resized, place, layout.tile))
  if (layout.hasOverview) tiles.push(resample(resized, layout.tile, kernel))
  return settings.patch === undefined
    ? planes(tiles, layout.tile, settings)
    : patches(tiles[0] as Pixels, settings, settings.patch)
}

function crop(
  image: Pixels,
  { x, y }: { readonly x: number; readonly y: number },
  { width, height }: ImageSize,
): Pixels {
  if (image.width === width && image.height === height) return image
  const data = new Uint8Array(3 * width * height)
  for (let row = 0; row < height; row += 1) {
    const from = 3 * ((y + row) * image.width + x)
    data.set(image.data.subarray(from, from + 3 * width), 3 * row * width)
  }
  return { data, width, height }
}

/** The converted values of the 256 levels of a channel. */
function tablesOf({ scale, mean, std }: PixelSettings): readonly Float32Array[] {
  return mean.map((average, channel) => {
    return Float32Array.from({ length: 256 }, (_, value) => {
      return (value * scale - average) / (std[channel] as number)
    })
  })
}

/** Channels of tiles one after another. */
function planes(
  tiles: readonly Pixels[],
  { width, height }: ImageSize,
  settings: PixelSettings,
): PixelValues {
  const area = width * height
  const data = new Float32Array(tiles.length * 3 * area)
  const tables = tablesOf(settings)
  for (const [index, tile] of tiles.entries()) {
    for (const [channel, table] of tables.entries()) {
      const start = (index * 3 + channel) * area
      const place = settings.isBlueFirst ? 2 - channel : channel
      for (let at = 0; at < area; at += 1) {
        data[start + at] = table[tile.data[3 * at + place] as number] as number
      }
    }
  }
  return { data, dims: [tiles.length, 3, height, width] }
}

/**
 * Patches in the order in which the encoder joins them: squares of `merge` × `merge` patches row by
 * row. A still image is repeated for each frame of a patch.
 */
function patches(
  { data: pixels, width, height }: Pixels,
  settings: PixelSettings,
  { side, merge, frames }: NonNullable<PixelSettings['patch']>,
): PixelValues {
  const [rows, columns] = [height / side, width / side]
  const tables = tablesOf(settings)
  const size = 3 * frames * side * side
  const data = new Float32Array(rows * columns * size)
  const perSquare = merge * merge
  const squares = columns / merge
  for (let patch = 0; patch < rows * columns; patch += 1) {
    const square = Math.floor(patch / perSquare)
    const inner = patch % perSquare
    const top = (Math.floor(square / squares) * merge + Math.floor(inner / merge)) * side
    const left = ((square % squares) * merge + (inner % merge)) * side
    for (let place = 0; place < size; place += 1) {
      const channel = Math.floor(place / (frames * side * side))
      const within = place % (side * side)
      const y = top + Math.floor(within / side)
      const x = left + (within % side)
      const value = pixels[3 * (y * width + x) + channel] as number
      data[patch * size + place] = (tables[channel] as Float32Array)[value] as number
    }
  }
  return { data, dims: [rows * columns, size], grid: [rows, columns] }
}
