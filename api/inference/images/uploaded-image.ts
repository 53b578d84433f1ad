import type { Readable } from 'node:stream'

import type { Metadata } from 'sharp'

import { failure, type ServiceError } from '#shared/errors.ts'
import { boundImage } from '#shared/image-bytes.ts'
import { restrictImageDecoders } from '#shared/image-decoders.ts'

/** The size limit of one uploaded image, exclusive. */
const IMAGE_BYTES_MAX = 4 * 1024 * 1024
const SIDE_MAX = 4096 // pixels; an honest image of 4 MB has fewer

/** An image with a checked header; workers decode its pixels. */
interface UploadedImage {
  readonly bytes: Buffer
  readonly format: 'png' | 'jpeg' | 'webp'
  readonly side: number
  readonly isGrey: boolean
  readonly hasAlpha: boolean
}

/** Reads an image of a form, up to the limit. */
export async function receiveImage(stream: Readable, param: string): Promise<Buffer> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of stream) {
    bytes += chunk.length
    if (bytes >= IMAGE_BYTES_MAX) throw notAnImage(param)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

/** Checks the header of an image. Throws `invalidRequest` naming the parameter. */
export async function inspectImage(bytes: Buffer, param: string): Promise<UploadedImage> {
  const format = formatOf(bytes)
  if (format === undefined || format === 'gif') throw notAnImage(param)
  const header = await readHeader(bytes, (cause) => notAnImage(param, cause))
  const { width, height, hasAlpha, pages, channels = 3 } = header
  if (width === undefined || height === undefined) throw notAnImage(param)
  if ((pages ?? 1) > 1) throw invalidFormat('Uploaded image must not be animated.', param)
  if (width !== height) throw invalidFormat('Uploaded image must be square.', param)
  if (width > SIDE_MAX) {
    throw invalidFormat(
      `Uploaded image must be at most ${SIDE_MAX} pixels wide and high, but it is ${width}.`,
      param,
    )
  }
  return { bytes, format, side: width, isGrey: channels < 3, hasAlpha: hasAlpha === true }
}

/** Throws unless the mask fits the image, whose areas it marks by transparency. */
export function checkMask(image: UploadedImage, mask: UploadedImage): void {
  if (mask.format !== 'png') throw invalidFormat('Uploaded mask must be a PNG.', 'mask')
  if (mask.side !== image.side) {
    throw invalidFormat(
      `Uploaded mask must have the size of the image: expected ${image.side}x${image.side}, but got ${mask.side}x${mask.side}.`,
      'mask',
    )
  }
  if (!mask.hasAlpha) {
    throw invalidFormat(
      `Invalid mask image - format must be in ['RGBA', 'LA'], got ${mask.isGrey ? 'L' : 'RGB'}. Its transparent areas are redrawn.`,
      'mask',
    )
  }
}

// By the signature alone: neither names nor content types of uploads can be relied on, and the
// decoder knows formats that are not meant to be read here.
/** The format of an image by its first bytes. */
export function formatOf(bytes: Buffer): UploadedImage['format'] | 'gif' | undefined {
  const head = bytes.subarray(0, 12).toString('latin1')
  if (head.startsWith('\x89PNG\r\n\x1a\n')) return 'png'
  if (head.startsWith('\xff\xd8\xff')) return 'jpeg'
  if (head.startsWith('GIF8')) return 'gif'
  if (head.startsWith('RIFF') && head.endsWith('WEBP')) return 'webp'
  return undefined
}

/** Reads the header of an image; `refuse` makes the error for one that cannot be read. */
export async function readHeader(
  bytes: Buffer,
  refuse: (cause: unknown) => ServiceError,
): Promise<Metadata> {
  const sharp = await loadSharp()
  try {
    // No pixel limit here, so that an image that is too large gets its own error.
    return await sharp(boundImage(bytes), { limitInputPixels: false }).metadata()
  } catch (cause) {
    throw refuse(cause)
  }
}

/** Loaded with the first image, because it brings a large native library. */
async function loadSharp(): Promise<typeof import('sharp')['default']> {
  const { default: sharp } = await import('sharp')
  restrictImageDecoders(sharp)
  return sharp
}

function notAnImage(param: string, cause?: unknown): ServiceError {
  return failure.invalidRequest(
    'Uploaded image must be a PNG and less than 4 MB. JPEG and WebP are accepted too.',
    { param, code: 'invalid_image', cause },
  )
}

function invalidFormat(message: string, param: string): ServiceError {
  return failure.invalidRequest(message, { param, code: 'invalid_image_format' })
}
