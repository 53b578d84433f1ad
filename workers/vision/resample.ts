import { defined } from '#shared/json.ts'
import type { Pixels } from '#workers/image/pixels.ts'

/** A weight by distance, zero beyond `support`; without support it is the nearest element. */
interface Kernel {
  readonly support: number
  weight(distance: number): number
}

const CUBIC_SHARPNESS = -0.5 // as Pillow has it

/** Kernels by their names in image processors' files, which number them as Pillow does. */
const KERNELS = {
  nearest: { support: 0, weight: () => 1 },
  box: { support: 0.5, weight: (x) => (x > -0.5 && x <= 0.5 ? 1 : 0) },
  hamming: { support: 1, weight: (x) => (Math.abs(x) < 1 ? sinc(x) * hamming(x) : 0) },
  lanczos: { support: 3, weight: (x) => (Math.abs(x) < 3 ? sinc(x) * sinc(x / 3) : 0) },
  bilinear: { support: 1, weight: (x) => Math.max(1 - Math.abs(x), 0) },
  bicubic: { support: 2, weight: cubic },
} as const satisfies Record<string, Kernel>

export type KernelName = keyof typeof KERNELS

function sinc(x: number): number {
  return x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x)
}

function hamming(x: number): number {
  return 0.54 + 0.46 * Math.cos(Math.PI * x)
}

function cubic(distance: number): number {
  const x = Math.abs(distance)
  const a = CUBIC_SHARPNESS
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0
}

/** For each element of a line, the first source element and the weights from there on. */
interface Taps {
  readonly first: Int32Array
  readonly counts: Int32Array
  readonly weights: Int32Array
  readonly width: number
}

/** Weights have this many fraction bits, so that sums stay within 32 bits. */
const FRACTION_BITS = 22
const CHANNELS = 3

/**
 * Resizes RGB pixels exactly like torchvision and Pillow 12: a kernel as wide as the reduction,
 * integer weights, rows first, then columns of the rounded result. Pillow 13 starts with the
 * columns of tall images, which clips other values between the two passes.
 */
export function resample(
  image: Pixels,
  size: { readonly width: number; readonly height: number },
  kernel: KernelName,
): Pixels {
  const wide = image.width === size.width ? image : resampleRows(image, size.width, kernel)
  return wide.height === size.height ? wide : resampleColumns(wide, size.height, kernel)
}

function resampleRows({ data, width, height }: Pixels, target: number, kernel: KernelName): Pixels {
  const taps = tapsOf(width, target, KERNELS[kernel])
  const made = new Uint8Array(target * height * CHANNELS)
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < target; x += 1) {
      const from = (y * width + defined(taps.first[x])) * CHANNELS
      sumTaps(data, from, CHANNELS, { taps, index: x, made, at: (y * target + x) * CHANNELS })
    }
  }
  return { data: made, width: target, height }
}

function resampleColumns(image: Pixels, target: number, kernel: KernelName): Pixels {
  const { data, width, height } = image
  const taps = tapsOf(height, target, KERNELS[kernel])
  const made = new Uint8Array(width * target * CHANNELS)
  for (let y = 0; y < target; y += 1) {
    const row = defined(taps.first[y]) * width
    for (let x = 0; x < width; x += 1) {
      const at = (y * width + x) * CHANNELS
      sumTaps(data, (row + x) * CHANNELS, width * CHANNELS, { taps, index: y, made, at })
    }
  }
  return { data: made, width, height: target }
}

/** Writes one pixel: the weighted sum of pixels starting at `from`, `step` elements apart. */
function sumTaps(
  data: Uint8Array,
  from: number,
  step: number,
  target: {
    readonly taps: Taps
    readonly index: number
    readonly made: Uint8Array
    readonly at: number
  },
): void {
  const { taps, index, made, at } = target
  const { counts, weights, width } = taps
  const count = counts[index] as number
  const start = index * width
  let [red, green, blue] = [HALF, HALF, HALF]
  for (let tap = 0, place = from; tap < count; tap += 1, place += step) {
    const weight = weights[start + tap] as number
    red += (data[place] as number) * weight
    green += (data[place + 1] as number) * weight
    blue += (data[place + 2] as number) * weight
  }
  made[at] = clip(red)
  made[at + 1] = clip(green)
  made[at + 2] = clip(blue)
}

const HALF = 1 << (FRACTION_BITS - 1)

function clip(sum: number): number {
  const value = sum >> FRACTION_BITS
  return value < 0 ? 0 : value > 255 ? 255 : value
}

function tapsOf(length: number, target: number, { support, weight }: Kernel): Taps {
  const scale = length / target
  const stretch = Math.max(scale, 1)
  const reach = support * stretch
  const width = Math.ceil(reach) * 2 + 1
  const first = new Int32Array(target)
  const counts = new Int32Array(target)
  const weights = new Int32Array(target * width)
  for (let index = 0; index < target; index += 1) {
    const centre = (index + 0.5) * scale
    const nearest = Math.floor(centre)
    const start = support === 0 ? nearest : Math.max(Math.trunc(centre - reach + 0.5), 0)
    const end = support === 0 ? nearest + 1 : Math.min(Math.trunc(centre + reach + 0.5), length)
    const exact = Array.from({ length: end - start }, (_, tap) =>
      weight((tap + start - centre + 0.5) / stretch),
    )
    const total = exact.reduce((sum, value) => sum + value, 0)
    first[index] = start
    counts[index] = exact.length
    for (const [tap, value] of exact.entries()) {
      const scaled = (value / total) * (1 << FRACTION_BITS)
      weights[index * width + tap] = Math.trunc(scaled + (scaled < 0 ? -0.5 : 0.5))
    }
  }
  return { first, counts, weights, width }
}
