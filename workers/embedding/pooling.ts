/**
 * How the vectors of a text's tokens are pooled into one, by the names in `1_Pooling/config.json`.
 */
export type PoolingMode = 'mean' | 'cls' | 'max' | 'lastToken' | 'weightedMean' | 'meanSqrtLength'

/** Token vectors of a batch: float32 `[count, width, dimensions]`, padded on the right or left. */
interface TokenVectors {
  readonly data: Float32Array
  readonly width: number
  readonly dimensions: number
  /** `[count, width]`, 1 for tokens and 0 for padding. */
  readonly mask: BigInt64Array
}

/** The pooled vector of one row of a batch. */
export function pool(mode: PoolingMode, vectors: TokenVectors, row: number): Float32Array {
  switch (mode) {
    case 'cls':
      return tokenAt(vectors, row, firstToken(vectors, row)).slice()
    case 'lastToken':
      return tokenAt(vectors, row, lastToken(vectors, row)).slice()
    case 'max':
      return maximum(vectors, row)
    case 'mean':
      return weightedSum(
        vectors,
        row,
        () => 1,
        (weights) => weights,
      )
    case 'meanSqrtLength':
      return weightedSum(vectors, row, () => 1, Math.sqrt)
    case 'weightedMean':
      return weightedSum(
        vectors,
        row,
        (position) => position + 1,
        (weights) => weights,
      )
  }
}

/** The pooled vectors of several modes, concatenated. */
export function poolAll(
  modes: readonly PoolingMode[],
  vectors: TokenVectors,
  row: number,
): Float32Array {
  const [first, ...others] = modes.map((mode) => pool(mode, vectors, row))
  if (others.length === 0) return first as Float32Array
  return Float32Array.from([first as Float32Array, ...others].flatMap((part) => [...part]))
}

/** Scales the vector to length 1, in place; a zero vector is unchanged. */
export function normalize(vector: Float32Array): Float32Array {
  let squares = 0
  for (const value of vector) squares += value * value
  const length = Math.sqrt(squares)
  if (length > 0) for (let i = 0; i < vector.length; i++) vector[i] = (vector[i] as number) / length
  return vector
}

function tokenAt({ data, width, dimensions }: TokenVectors, row: number, position: number) {
  const start = (row * width + position) * dimensions
  return data.subarray(start, start + dimensions)
}

function isToken({ mask, width }: TokenVectors, row: number, position: number): boolean {
  return mask[row * width + position] === 1n
}

function firstToken(vectors: TokenVectors, row: number): number {
  let position = 0
  while (position < vectors.width - 1 && !isToken(vectors, row, position)) position++
  return position
}

function lastToken(vectors: TokenVectors, row: number): number {
  let position = vectors.width - 1
  while (position > 0 && !isToken(vectors, row, position)) position--
  return position
}

function maximum(vectors: TokenVectors, row: number): Float32Array {
  const pooled = new Float32Array(vectors.dimensions).fill(-Infinity)
  for (let position = 0; position < vectors.width; position++) {
    if (!isToken(vectors, row, position)) continue
    const token = tokenAt(vectors, row, position)
    for (let i = 0; i < pooled.length; i++) {
      pooled[i] = Math.max(pooled[i] as number, token[i] as number)
    }
  }
  return pooled
}

function weightedSum(
  vectors: TokenVectors,
  row: number,
  weightOf: (position: number) => number,
  divisorOf: (weights: number) => number,
): Float32Array {
  const pooled = new Float32Array(vectors.dimensions)
  let weights = 0
  for (let position = 0; position < vectors.width; position++) {
    if (!isToken(vectors, row, position)) continue
    const weight = weightOf(position)
    const token = tokenAt(vectors, row, position)
    for (let i = 0; i < pooled.length; i++)
      pooled[i] = (pooled[i] as number) + weight * (token[i] as number)
    weights += weight
  }
  const divisor = Math.max(divisorOf(weights), 1e-9)
  for (let i = 0; i < pooled.length; i++) pooled[i] = (pooled[i] as number) / divisor
  return pooled
}
