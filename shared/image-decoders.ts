import type sharp from 'sharp'

// As libvips names them. Other formats, such as SVG, AVIF and TIFF, are not parsed at all.
const DECODERS = [
  'VipsForeignLoadPng',
  'VipsForeignLoadJpeg',
  'VipsForeignLoadWebp',
  'VipsForeignLoadNsgif', // GIF
]

// The library has one list of decoders for the whole process.
let areRestricted = false

/**
 * Blocks all decoders of the image library but those of PNG, JPEG, WebP and GIF. The library
 * chooses a decoder by the content of a file, not by its name or content type: a file that passes a
 * check by mistake must not reach a decoder that is unfit for hostile files.
 */
export function restrictImageDecoders(library: typeof sharp): void {
  // Not twice: between the two calls an image that is decoded elsewhere would be refused.
  if (areRestricted) return
  areRestricted = true
  library.block({ operation: ['VipsForeignLoad'] })
  library.unblock({ operation: DECODERS })
}
