import { failure } from '#shared/errors.ts'
import type { Encoder } from '#workers/embedding/encoder.ts'
import { normalize } from '#workers/embedding/pooling.ts'

/** Throws when a model does not support this number of dimensions. */
export function refuseDimensions(
  dimensions: number | null,
  encoder: Pick<Encoder, 'dimensions' | 'isTruncatable'>,
): void {
  if (dimensions === null || dimensions === encoder.dimensions) return
  if (!encoder.isTruncatable) {
    throw failure.invalidRequest('This model does not support specifying dimensions.', {
      param: 'dimensions',
      code: 'unsupported_parameter',
    })
  }
  if (encoder.dimensions !== undefined && dimensions > encoder.dimensions) {
    throw failure.invalidRequest(
      `Invalid 'dimensions': integer above maximum value. Expected a value <= ${encoder.dimensions}, but got ${dimensions} instead.`,
      { param: 'dimensions', code: 'integer_above_max_value' },
    )
  }
}

/** The leading dimensions, scaled to length 1 again (Matryoshka representations, Kusupati 2022). */
export function cutTo(vector: Float32Array, dimensions: number | null): Float32Array {
  if (dimensions === null || dimensions === vector.length) return vector
  return normalize(vector.slice(0, dimensions))
}
