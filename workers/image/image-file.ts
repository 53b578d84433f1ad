import sharp, { type Metadata, type Sharp } from 'sharp'

import type { ImageFormat } from '#shared/contracts/image.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import { boundImage, IMAGE_SIDE_MAX } from '#shared/image-bytes.ts'
import { restrictImageDecoders } from '#shared/image-decoders.ts'

import type { ImageSize, Pixels, RedrawMask } from './pixels.ts'

/**
 * An uploaded image. It is decoded directly to the required size, in a thread of the library: the
 * pixels of a large image would block this process and fill its memory.
 */
export interface SourceImage extends ImageSize {
  /**
   * Its colours on a white background; Lanczos, cropped to the new aspect ratio around the centre.
   */
  coloursAt(size: ImageSize): Promise<Pixels>
  /** The same in its own size. */
  colours(): Promise<Pixels>
  /** The area that is at least half transparent, with hard edges. */
  transparencyAt(size: ImageSize): Promise<RedrawMask>
}

const PIXELS_MAX = 4096 ** 2
const FORMATS = ['png', 'jpeg', 'webp']
/** Formats of images in prompts. */
export const PROMPT_IMAGE_FORMATS = [...FORMATS, 'gif']
const OPAQUE_MIN = 128
const FORMAT_NAMES: Readonly<Record<string, string>> = {
  png: 'PNG',
  jpeg: 'JPEG',
  webp: 'WebP',
  gif: 'GIF',
}

/**
 * Opens a PNG, JPEG or WebP file, or one of other `formats`; for an animation the first image. Its
 * header is checked first, so that a small file with a huge declared size costs nothing. Throws
 * `invalidRequest` naming the field, now or while decoding.
 */
export async function openImage(
  file: Buffer,
  param: string,
  formats: readonly string[] = FORMATS,
): Promise<SourceImage> {
  const bytes = readBytes(file, param, formats)
  // Rotated upright by the orientation in its header.
  const { autoOrient } = await readHeader(bytes, param, formats)
  const { width, height } = autoOrient
  if (width * height > PIXELS_MAX || Math.max(width, height) > IMAGE_SIDE_MAX) {
    throw failure.invalidRequest(
      `The ${param} has ${width}×${height} pixels; at most ${PIXELS_MAX} are allowed, ${IMAGE_SIDE_MAX} on one side.`,
      { param, code: 'image_too_large' },
    )
  }
  const decode = () =>
    sharp(bytes, { limitInputPixels: PIXELS_MAX, sequentialRead: true })
      .autoOrient()
      .toColourspace('srgb')
  // Scaling first would blend colours of transparent areas into the edges.
  const flatten = () => decode().flatten({ background: '#fff' })
  const read = async (image: Sharp): Promise<Pixels> => {
    const { data, info } = await image
      .raw({ depth: 'uchar' })
      .toBuffer({ resolveWithObject: true })
      .catch((error: unknown) => {
        throw unreadable(param, error, formats)
      })
    return { data: new Uint8Array(data), width: info.width, height: info.height }
  }
  return {
    width,
    height,
    coloursAt: (size) => read(flatten().resize({ ...size, fit: 'cover', kernel: 'lanczos3' })),
    colours: () => read(flatten()),
    async transparencyAt(size) {
      const alpha = await read(
        decode()
          .ensureAlpha()
          .resize({ ...size, fit: 'cover', kernel: 'nearest' })
          .extractChannel('alpha'),
      )
      return { ...alpha, data: alpha.data.map((value) => (value < OPAQUE_MIN ? 1 : 0)) }
    },
  }
}

/**
 * Disables the library's cache, which would hold up to 50 MB for images that never return, and its
 * decoders of other formats. Called before the first image is read.
 */
export function prepareImageLibrary(): void {
  restrictImageDecoders(sharp)
  sharp.cache(false)
}

function readBytes(file: Buffer, param: string, formats: readonly string[]): Buffer {
  try {
    return boundImage(file)
  } catch (error) {
    throw unreadable(param, error, formats)
  }
}

async function readHeader(bytes: Buffer, param: string, formats: readonly string[]) {
  const header = await readMetadata(bytes).catch((error: unknown) => {
    throw unreadable(param, error, formats)
  })
  if (header.format === undefined || !formats.includes(header.format)) {
    throw unreadable(param, undefined, formats)
  }
  return header
}

// The library throws synchronously for empty input.
async function readMetadata(bytes: Buffer): Promise<Metadata> {
  return sharp(bytes, { limitInputPixels: false }).metadata()
}

/** RGB pixels at another size; Lanczos, cropped to the new aspect ratio around the centre. */
export async function resizeImage(pixels: Pixels, size: ImageSize): Promise<Pixels> {
  const { width, height } = pixels
  if (width === size.width && height === size.height) return pixels
  const { data, info } = await sharp(pixels.data, { raw: { width, height, channels: 3 } })
    .resize({ ...size, fit: 'cover', kernel: 'lanczos3' })
    .raw()
    .toBuffer({ resolveWithObject: true })
  return { data: new Uint8Array(data), width: info.width, height: info.height }
}

/** Encodes pixels in a file format; `quality` applies to lossy formats. */
export function encodeImage(
  { data, width, height }: Pixels,
  { format = 'png', quality }: { readonly format?: ImageFormat; readonly quality?: number } = {},
): Promise<Buffer> {
  const image = sharp(data, { raw: { width, height, channels: 3 } })
  if (format === 'png') return image.png().toBuffer()
  // The encoder takes no quality below 1.
  return image
    .toFormat(format, quality === undefined ? {} : { quality: Math.max(1, quality) })
    .toBuffer()
}

function unreadable(param: string, cause: unknown, formats: readonly string[]): ServiceError {
  const names = formats.map((format) => FORMAT_NAMES[format] ?? format)
  return failure.invalidRequest(
    `The ${param} could not be read. It must be a valid ${names.slice(0, -1).join(', ')} or ${names.at(-1)} file.`,
    { param, code: 'invalid_image', cause },
  )
}
