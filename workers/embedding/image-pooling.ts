import { pool } from './pooling.ts'

/** How the features of an image become its vector. */
export interface ImagePooling {
  /** By the names of `options.pooling`; as the features are if undefined. */
  readonly mode: 'cls' | 'mean' | undefined
  /** The number of patches of an image. */
  readonly patches: number
}

/**
 * The vectors of images, one after another, from the output of their graph: vectors `[images,
 * dimensions]`, those of tokens `[images, tokens, dimensions]`, or the channels of a convolution
 * `[images, dimensions, height, width]`. Graphs with more tokens than patches begin with a class
 * token, which is the vector; otherwise the vector is the mean.
 */
export function poolImages(
  values: Float32Array,
  dims: readonly number[],
  { mode, patches }: ImagePooling,
): Float32Array {
  const [images = 1, second = 1, third = 1, fourth = 1] = dims
  if (dims.length === 4) return means(values, { images, dimensions: second, count: third * fourth })
  if (dims.length !== 3) return values
  const [width, dimensions] = [second, third]
  // Images have no padding.
  const mask = new BigInt64Array(images * width).fill(1n)
  const pooling = mode ?? (width > patches ? 'cls' : 'mean')
  const vectors = new Float32Array(images * dimensions)
  for (let image = 0; image < images; image += 1) {
    const vector = pool(pooling, { data: values, width, dimensions, mask }, image)
    vectors.set(vector, image * dimensions)
  }
  return vectors
}

/** The mean of each channel. */
function means(
  values: Float32Array,
  {
    images,
    dimensions,
    count,
  }: { readonly images: number; readonly dimensions: number; readonly count: number },
): Float32Array {
  return Float32Array.from({ length: images * dimensions }, (_, channel) => {
    const positions = values.subarray(channel * count, (channel + 1) * count)
    return positions.reduce((sum, value) => sum + value, 0) / count
  })
}
