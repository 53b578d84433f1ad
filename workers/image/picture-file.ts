import sharp from 'sharp'

import { failure, type ServiceError } from '#shared/errors.ts'

import type { Pixels, RedrawMask } from './pixels.ts'

/** An uploaded picture, decoded. */
export interface SourcePicture {
  /** Four channels. */
  readonly rgba: Pixels
  readonly hasTransparency: boolean
}

const PIXELS_MAX = 4096 ** 2
const FORMATS: readonly (string | undefined)[] = ['png', 'jpeg', 'webp']

/**
 * Decodes a PNG, JPEG or WebP file. Its header is judged first, so that a small file that claims to be
 * huge costs nothing. Throws `invalidRequest` naming the field that it came in.
 */
export async function decodePicture(bytes: Buffer, param: string): Promise<SourcePicture> {
  const { width, height } = await readHeader(bytes, param)
  if (width * height > PIXELS_MAX) {
    throw failure.invalidRequest(
      `The ${param} has ${width}×${height} pixels, more than the ${PIXELS_MAX} that are allowed.`,
      { param, code: 'image_too_large' },
    )
  }
  try {
    const { data, info } = await sharp(bytes, { limitInputPixels: PIXELS_MAX })
      .toColourspace('srgb')
      .ensureAlpha()
      .raw({ depth: 'uchar' })
      .toBuffer({ resolveWithObject: true })
    const rgba = { data: new Uint8Array(data), width: info.width, height: info.height }
    return { rgba, hasTransparency: rgba.data.some((value, i) => i % 4 === 3 && value < 128) }
  } catch (error) {
    throw unreadable(param, error)
  }
}

async function readHeader(bytes: Buffer, param: string) {
  const header = await sharp(bytes, { limitInputPixels: false })
    .metadata()
    .catch((error: unknown) => {
      throw unreadable(param, error)
    })
  if (!FORMATS.includes(header.format)) throw unreadable(param)
  return header
}

/** RGB pixels at another size; Lanczos, cut to the new proportions around the middle. */
export async function resizePicture(
  pixels: Pixels,
  size: { readonly width: number; readonly height: number },
): Promise<Pixels> {
  const { width, height } = pixels
  if (width === size.width && height === size.height) return pixels
  const { data, info } = await sharp(pixels.data, { raw: { width, height, channels: 3 } })
    .resize({ ...size, fit: 'cover', kernel: 'lanczos3' })
    .raw()
    .toBuffer({ resolveWithObject: true })
  return { data: new Uint8Array(data), width: info.width, height: info.height }
}

/** A mask at another size, without half-redrawn pixels at its edges. */
export async function resizeMask(
  mask: RedrawMask,
  size: { readonly width: number; readonly height: number },
): Promise<RedrawMask> {
  const { width, height } = mask
  const { data, info } = await sharp(mask.data, { raw: { width, height, channels: 1 } })
    .resize({ ...size, fit: 'cover', kernel: 'nearest' })
    .extractChannel(0)
    .raw()
    .toBuffer({ resolveWithObject: true })
  return { data: new Uint8Array(data), width: info.width, height: info.height }
}

/** Drops the alpha channel without touching a colour. */
export function coloursOf({ data, width, height }: Pixels): Pixels {
  const colours = new Uint8Array(3 * width * height)
  for (let i = 0; i < width * height; i++) colours.set(data.subarray(4 * i, 4 * i + 3), 3 * i)
  return { data: colours, width, height }
}

/** RGB pixels as a PNG file. */
export function encodePng({ data, width, height }: Pixels): Promise<Buffer> {
  return sharp(data, { raw: { width, height, channels: 3 } })
    .png()
    .toBuffer()
}

function unreadable(param: string, cause?: unknown): ServiceError {
  return failure.invalidRequest(
    `The ${param} could not be read. It must be a valid PNG, JPEG or WebP file.`,
    { param, code: 'invalid_image', cause },
  )
}
