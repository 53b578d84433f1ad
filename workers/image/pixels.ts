import type { Volume } from './run-volumes.ts'

/** Width and height in pixels. */
export interface ImageSize {
  readonly width: number
  readonly height: number
}

/** Interleaved 8-bit pixels of a rectangle. */
export interface Pixels extends ImageSize {
  readonly data: Uint8Array
}

/** RGB pixels to the VAE's input: planar, −1 … 1. */
export function toVolume({ data, width, height }: Pixels): Volume {
  const plane = width * height
  const values = new Float32Array(3 * plane)
  for (let i = 0; i < plane; i++) {
    for (let c = 0; c < 3; c++) values[c * plane + i] = (data[3 * i + c] as number) / 127.5 - 1
  }
  return { data: values, dims: [1, 3, height, width] }
}

/** The VAE's output as RGB pixels. */
export function toPixels({ data, dims }: Volume): Pixels {
  const [, , height, width] = dims as [number, number, number, number]
  const plane = width * height
  const pixels = new Uint8Array(3 * plane)
  for (let i = 0; i < plane; i++) {
    for (let c = 0; c < 3; c++) {
      const value = ((data[c * plane + i] as number) + 1) * 127.5
      pixels[3 * i + c] = Math.max(0, Math.min(255, Math.round(value)))
    }
  }
  return { data: pixels, width, height }
}

/** The mask by pixel: 1 where the image is regenerated, 0 where it stays. */
export interface RedrawMask extends ImageSize {
  readonly data: Uint8Array
}

/** The mask over the latents: a latent is regenerated where any of its pixels is. */
export function shrinkMask(mask: RedrawMask, size: ImageSize): Float32Array {
  const small = new Float32Array(size.width * size.height)
  for (let y = 0; y < mask.height; y++) {
    for (let x = 0; x < mask.width; x++) {
      if (mask.data[y * mask.width + x] === 0) continue
      const row = Math.floor((y * size.height) / mask.height)
      small[row * size.width + Math.floor((x * size.width) / mask.width)] = 1
    }
  }
  return small
}

/**
 * The size to draw an image of another size at: about as many pixels as `native` squared in the
 * aspect ratio that is asked for, both sides multiples of `step`.
 */
export function fitSize({ width, height }: ImageSize, native: number, step: number): ImageSize {
  const stretch = Math.sqrt(width / height)
  const toStep = (side: number) => Math.max(step, Math.floor(side / step) * step)
  return { width: toStep(native * stretch), height: toStep(native / stretch) }
}

/** The generated image inside the mask, the original's exact pixels outside. */
export function pasteBack(drawn: Pixels, original: Pixels, mask: RedrawMask): Pixels {
  const data = Uint8Array.from(original.data)
  for (let i = 0; i < mask.data.length; i++) {
    if (mask.data[i] === 0) continue
    for (let c = 3 * i; c < 3 * i + 3; c++) data[c] = drawn.data[c] as number
  }
  return { ...original, data }
}

/** Grey inside the mask, so that hidden colours under transparent areas have no influence. */
export function blankOut(original: Pixels, mask: RedrawMask): Pixels {
  const grey = { ...original, data: new Uint8Array(original.data.length).fill(128) }
  return pasteBack(grey, original, mask)
}
