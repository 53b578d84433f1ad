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
  const re = new Float64Array(length)
  const im = new Float64Array(length)
  const scratch = { re: new Float64Array(length), im: new Float64Array(length) }

  /** Transforms every `stride`-th sample from `from` on; results fill `count` places from `to` on. */
  function transform(
    signal: Float64Array,
    from: number,
    stride: number,
    count: number,
    to: number,
    depth: number,
  ): void {
    if (count === 1) {
      re[to] = signal[from] as number
      im[to] = 0
      return
    }
    const radix = factors[depth] as number
    const part = count / radix
    for (let r = 0; r < radix; r++) {
      transform(signal, from + r * stride, stride * radix, part, to + r * part, depth + 1)
    }
    butterfly(radix, part, to, length / count)
  }

  /** Joins `radix` transforms of `part` points into one of `radix × part` points. */
  function butterfly(radix: number, part: number, to: number, twiddleStride: number): void {
    const count = radix * part
    for (let k = 0; k < count; k++) {
      let sumRe = 0
      let sumIm = 0
      for (let r = 0; r < radix; r++) {
        const source = to + r * part + (k % part)
        const twiddle = ((r * k) % count) * twiddleStride
        const c = cos[twiddle] as number
        const s = sin[twiddle] as number
        const x = re[source] as number
        const y = im[source] as number
        sumRe += x * c - y * s
        sumIm += x * s + y * c
      }
      scratch.re[k] = sumRe
      scratch.im[k] = sumIm
    }
    for (let k = 0; k < count; k++) {
      re[to + k] = scratch.re[k] as number
      im[to + k] = scratch.im[k] as number
    }
  }

  return {
    length,
    power(signal, into) {
      transform(signal, 0, 1, length, 0, 0)
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
