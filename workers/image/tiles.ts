import type { ImageSize } from './pixels.ts'
import type { Volume } from './run-volumes.ts'

/** How an image is processed in tiles. */
interface Tiling {
  /** Values per side of a tile of the input. */
  readonly inputSide: number
  /** Values per side of the same tile of the output. */
  readonly outputSide: number
}

// The share of a tile that its neighbours also cover, as in diffusers.
const OVERLAP = 0.25

/**
 * Runs a network over overlapping tiles of its input and blends their edges linearly, so that its
 * memory is that of a tile. Tiles run one after another, from left to right and down.
 */
export async function runTiled(
  input: Volume,
  { inputSide, outputSide }: Tiling,
  run: (tile: Volume) => Promise<Volume>,
): Promise<Volume> {
  const stride = Math.floor(inputSide * (1 - OVERLAP))
  const blended = Math.floor(outputSide * OVERLAP)
  const kept = outputSide - blended
  const { width, height } = sizeOf(input)
  const factor = outputSide / inputSide
  let output: Volume | undefined
  let above: Volume[] = []
  for (let y = 0; y < height; y += stride) {
    const row: Volume[] = []
    for (let x = 0; x < width; x += stride) {
      const tile = await run(crop(input, { x, y, side: inputSide }))
      const [upper, left] = [above[row.length], row.at(-1)]
      if (upper !== undefined) blend(upper, tile, 'down', blended)
      if (left !== undefined) blend(left, tile, 'right', blended)
      output ??= emptyVolume(tile, { width: width * factor, height: height * factor })
      const at = { x: (x / stride) * kept, y: (y / stride) * kept }
      paste(tile, output, at, kept)
      row.push(tile)
    }
    above = row
  }
  return output ?? input
}

function sizeOf({ dims }: Volume): ImageSize {
  const [, , height, width] = dims as [number, number, number, number]
  return { width, height }
}

function emptyVolume({ dims }: Volume, { width, height }: ImageSize): Volume {
  const channels = dims[1] as number
  return { data: new Float32Array(channels * width * height), dims: [1, channels, height, width] }
}

/** The part of a volume at an offset; smaller at the end of the volume. */
function crop(
  input: Volume,
  { x, y, side }: { readonly x: number; readonly y: number; readonly side: number },
): Volume {
  const from = sizeOf(input)
  const size = { width: Math.min(side, from.width - x), height: Math.min(side, from.height - y) }
  const tile = emptyVolume(input, size)
  for (let line = 0; line < tile.data.length / size.width; line++) {
    const channel = Math.floor(line / size.height)
    const start = (channel * from.height + y + (line % size.height)) * from.width + x
    tile.data.set(input.data.subarray(start, start + size.width), line * size.width)
  }
  return tile
}

/** Copies the first `side` rows and columns of a tile to an offset, within the output. */
function paste(
  tile: Volume,
  output: Volume,
  { x, y }: { readonly x: number; readonly y: number },
  side: number,
): void {
  const [from, to] = [sizeOf(tile), sizeOf(output)]
  const width = Math.min(side, from.width, to.width - x)
  const height = Math.min(side, from.height, to.height - y)
  if (width <= 0 || height <= 0) return
  const channels = output.dims[1] as number
  for (let line = 0; line < channels * height; line++) {
    const [channel, row] = [Math.floor(line / height), line % height]
    const start = (channel * from.height + row) * from.width
    const target = (channel * to.height + y + row) * to.width + x
    output.data.set(tile.data.subarray(start, start + width), target)
  }
}

/** Fades from the last rows (or columns) of one tile into the first ones of the next, in place. */
function blend(before: Volume, after: Volume, direction: 'down' | 'right', wanted: number): void {
  const [from, to] = [sizeOf(before), sizeOf(after)]
  const isDown = direction === 'down'
  const extent = isDown
    ? Math.min(wanted, from.height, to.height)
    : Math.min(wanted, from.width, to.width)
  const size = isDown
    ? { width: Math.min(from.width, to.width), height: extent }
    : { width: extent, height: Math.min(from.height, to.height) }
  const channels = after.dims[1] as number
  for (let line = 0; line < channels * size.height; line++) {
    const [channel, y] = [Math.floor(line / size.height), line % size.height]
    const fromY = isDown ? from.height - extent + y : y
    const fromRow = (channel * from.height + fromY) * from.width
    const toRow = (channel * to.height + y) * to.width
    for (let x = 0; x < size.width; x++) {
      const share = (isDown ? y : x) / extent
      const fromX = isDown ? x : from.width - extent + x
      const old = before.data[fromRow + fromX] as number
      const at = toRow + x
      after.data[at] = old * (1 - share) + (after.data[at] as number) * share
    }
  }
}
