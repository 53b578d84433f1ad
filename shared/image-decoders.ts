import type sharp from 'sharp'

// The names of the decoders in libvips. Other formats, such as SVG, AVIF and TIFF, are not parsed.
const DECODERS = [
  'VipsForeignLoadPng',
  'VipsForeignLoadJpeg',
  'VipsForeignLoadWebp',
  'VipsForeignLoadNsgif', // GIF
]

// The library has one list of decoders for the whole process.
let areRestricted = false

/**
 * Blocks all decoders of the image library except PNG, JPEG, WebP and GIF. The library chooses a
 * decoder by the content of a file, not by its name or content type. A file that passes a check by
 * mistake must not reach a decoder that is unsafe for hostile files.
 */
export function restrictImageDecoders(library: typeof sharp): void {
  // A second call would block the decoders for a moment, and an image decoded elsewhere would fail.
  if (areRestricted) return
  areRestricted = true
  library.block({ operation: ['VipsForeignLoad'] })
  library.unblock({ operation: DECODERS })
}
