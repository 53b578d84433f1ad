/** A discrete Fourier transform of one length, planned once. */
export interface Fft {
  readonly length: number
  /** Squared magnitudes of frequencies 0 … length/2 of a real signal of `length` samples. */
  power(signal: Float64Array, into: Float64Array): void
}

/**
 * Plans a mixed-radix transform (Cooley and Tukey 1965) for any length; fast where its prime factors
 * are small, as those of Whisper's 400 are.
 */
export function planFft(length: number): Fft {
  const cos = Float64Array.from({ length }, (_, k) => Math.cos((2 * Math.PI * k) / length))
  const sin = Float64Array.from({ length }, (_, k) => -Math.sin((2 * Math.PI * k) / length))
  const factors = factorize(length)
  let input: Float64Array = new Float64Array(0)
  const re = new Float64Array(length)
  const im = new Float64Array(length)
  // One point of each of the transforms that are joined, turned by its twiddle.
  const turnedRe = new Float64Array(Math.max(...factors, 1))
  const turnedIm = new Float64Array(Math.max(...factors, 1))

  /** Transforms every `stride`-th sample from `from` on; results fill `count` places from `to` on. */
  function transform(from: number, stride: number, count: number, to: number, depth: number): void {
    if (count === 1) {
      re[to] = input[from] as number
      im[to] = 0
      return
    }
    const radix = factors[depth] as number
    const part = count / radix
    for (let r = 0; r < radix; r++) {
      transform(from + r * stride, stride * radix, part, to + r * part, depth + 1)
    }
    butterfly(radix, part, to, length / count)
  }

  /**
   * Joins `radix` transforms of `part` points into one of `radix × part` points, in place: the points
   * k of all parts are read and written together.
   */
  function butterfly(radix: number, part: number, to: number, twiddleStride: number): void {
    const rootStride = length / radix
    for (let k = 0; k < part; k++) {
      for (let r = 0, twiddle = 0; r < radix; r++, twiddle += k * twiddleStride) {
        const c = cos[twiddle] as number
        const s = sin[twiddle] as number
        const x = re[to + r * part + k] as number
        const y = im[to + r * part + k] as number
        turnedRe[r] = x * c - y * s
        turnedIm[r] = x * s + y * c
      }
      for (let q = 0; q < radix; q++) {
        let sumRe = 0
        let sumIm = 0
        for (let r = 0, root = 0; r < radix; r++) {
          const c = cos[root] as number
          const s = sin[root] as number
          const x = turnedRe[r] as number
          const y = turnedIm[r] as number
          sumRe += x * c - y * s
          sumIm += x * s + y * c
          root += q * rootStride
          if (root >= length) root -= length
        }
        re[to + q * part + k] = sumRe
        im[to + q * part + k] = sumIm
      }
    }
  }

  return {
    length,
    power(signal, into) {
      input = signal
      transform(0, 1, length, 0, 0)
      for (let k = 0; k <= length / 2; k++)
        into[k] = (re[k] as number) ** 2 + (im[k] as number) ** 2
    },
  }
}

function factorize(length: number): number[] {
  const factors: number[] = []
  let rest = length
  for (let prime = 2; rest > 1; prime++) {
    while (rest % prime === 0) {
      factors.push(prime)
      rest /= prime
    }
  }
  return factors
}
