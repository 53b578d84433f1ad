import { EndOfBitsError, type LowBitReader } from './bits.ts'
import { bitLength, readEntry } from './vorbis-codebook.ts'
import type { Floor, VorbisSetup } from './vorbis-setup.ts'

const RANGES = [256, 128, 86, 64]
// The table of section 10.1 spans 140 dB in 256 steps and ends at 1.
const LEVELS = Float32Array.from({ length: 256 }, (_, at) => 10 ** (((at - 255) * 140) / 256 / 20))

/**
 * The curve that a channel's residue is multiplied by; undefined for a silent channel (section
 * 7.2).
 */
export function readFloorCurve(
  bits: LowBitReader,
  setup: VorbisSetup,
  floor: Floor,
  length: number,
): Float32Array | undefined {
  try {
    if (!bits.readFlag()) return undefined
    return renderCurve(floor, readValues(bits, setup, floor), length)
  } catch (error) {
    if (error instanceof EndOfBitsError) return undefined
    throw error
  }
}

function readValues(bits: LowBitReader, { codebooks }: VorbisSetup, floor: Floor): number[] {
  const valueBits = bitLength((RANGES[floor.multiplier - 1] ?? 1) - 1)
  const values = [bits.read(valueBits), bits.read(valueBits)]
  const entryOf = (index: number) => {
    const book = codebooks[index]
    if (book === undefined) throw new Error('unknown codebook')
    return readEntry(bits, book)
  }
  for (const { dimensions, subclassBits, masterBook, books } of floor.partitions) {
    let choice = subclassBits > 0 ? entryOf(masterBook) : 0
    for (let i = 0; i < dimensions; i += 1) {
      const book = books[choice % books.length] ?? -1
      choice = Math.floor(choice / books.length)
      values.push(book >= 0 ? entryOf(book) : 0)
    }
  }
  return values
}

/**
 * Each point is coded as its distance from the line between its neighbours among the earlier
 * points.
 */
function renderCurve(floor: Floor, values: readonly number[], length: number): Float32Array {
  const { xs, multiplier, order } = floor
  const range = RANGES[multiplier - 1] ?? 1
  const ys = values.slice(0, 2)
  const isUsed = [true, true]
  for (let i = 2; i < xs.length; i += 1) {
    const { low, high } = neighboursOf(xs, i)
    const predicted = pointOn(xs[low] ?? 0, ys[low] ?? 0, xs[high] ?? 0, ys[high] ?? 0, xs[i] ?? 0)
    const value = values[i] ?? 0
    isUsed[i] = value !== 0
    if (value !== 0) isUsed[low] = isUsed[high] = true
    ys[i] = predicted + offsetOf(value, predicted, range - predicted)
  }
  const curve = new Float32Array(length)
  let [x, y] = [0, (ys[0] ?? 0) * multiplier]
  for (const i of order.slice(1)) {
    if (isUsed[i] !== true) continue
    const [nextX, nextY] = [xs[i] ?? 0, (ys[i] ?? 0) * multiplier]
    drawLine(curve, [x, y], [nextX, nextY])
    ;[x, y] = [nextX, nextY]
  }
  if (x < length) curve.fill(LEVELS[clampLevel(y)] ?? 0, x)
  return curve
}

/** Values are folded around the prediction as far as both sides have room. */
function offsetOf(value: number, roomBelow: number, roomAbove: number): number {
  const room = 2 * Math.min(roomAbove, roomBelow)
  if (value >= room) return roomAbove > roomBelow ? value - roomBelow : roomAbove - value - 1
  return value % 2 === 1 ? -(value + 1) / 2 : value / 2
}

function neighboursOf(xs: readonly number[], index: number): { low: number; high: number } {
  const x = xs[index] ?? 0
  let low = 0
  let high = 1
  for (let i = 0; i < index; i += 1) {
    const other = xs[i] ?? 0
    if (other < x && other > (xs[low] ?? 0)) low = i
    if (other > x && other < (xs[high] ?? 0)) high = i
  }
  return { low, high }
}

function pointOn(x0: number, y0: number, x1: number, y1: number, x: number): number {
  return y0 + Math.trunc(((y1 - y0) * (x - x0)) / (x1 - x0))
}

/** Integer lines as in section 9.2.7: the error of the slope is accumulated. */
function drawLine(curve: Float32Array, [x0, y0]: number[], [x1, y1]: number[]): void {
  const [fromX = 0, fromY = 0, toX = 0, toY = 0] = [x0, y0, x1, y1]
  const width = toX - fromX
  const height = toY - fromY
  const base = Math.trunc(height / width)
  const step = Math.abs(height) - Math.abs(base) * width
  let [y, error] = [fromY, 0]
  for (let x = fromX; x < Math.min(toX, curve.length); x += 1) {
    curve[x] = LEVELS[clampLevel(y)] ?? 0
    error += step
    y += base
    if (error >= width) {
      error -= width
      y += height < 0 ? -1 : 1
    }
  }
}

function clampLevel(y: number): number {
  return Math.max(0, Math.min(255, y))
}
