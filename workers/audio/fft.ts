/** A discrete Fourier transform of one length, planned once. */
export interface Fft {
  readonly length: number
  /**
   * Squared magnitudes of frequencies 0 … length/2 of two real signals of `length` samples, each into
   * its own array: one is the real, the other the imaginary part of a single transform.
   */
  powers(
    signals: readonly [Float64Array, Float64Array],
    into: readonly [Float64Array, Float64Array],
  ): void
}

/** Numbers with their real and imaginary parts apart. */
interface Complex {
  readonly re: Float64Array
  readonly im: Float64Array
}

/** One pass: `radix` points that are `count / radix` apart become neighbours, `stride` at a time. */
interface Pass {
  readonly radix: number
  readonly part: number
  readonly stride: number
}

/**
 * Plans a mixed-radix transform for any length, in the order of Stockham (1966), which needs no
 * permutation; fast where the prime factors are small, as those of Whisper's 400 are.
 */
export function planFft(length: number): Fft {
  const roots = rootsOfUnity(length)
  const passes = passesOf(length)
  const buffers = [complex(length), complex(length)] as const
  const room = complex(Math.max(1, ...passes.map(({ radix }) => radix)))

  function transform(): Complex {
    let [from, to] = buffers
    for (const pass of passes) {
      if (pass.radix === 4) joinFour(from, to, pass, roots)
      else joinPrime(from, to, pass, roots, room)
      ;[from, to] = [to, from]
    }
    return from
  }

  return {
    length,
    powers([first, second], [intoFirst, intoSecond]) {
      buffers[0].re.set(first)
      buffers[0].im.set(second)
      const { re, im } = transform()
      for (let k = 0; k <= length / 2; k++) {
        // What two real signals give at k and at -k is mirrored: sum and difference tell them apart.
        const mirror = k === 0 ? 0 : length - k
        const sumRe = (re[k] as number) + (re[mirror] as number)
        const sumIm = (im[k] as number) + (im[mirror] as number)
        const lessRe = (re[k] as number) - (re[mirror] as number)
        const lessIm = (im[k] as number) - (im[mirror] as number)
        intoFirst[k] = (sumRe * sumRe + lessIm * lessIm) / 4
        intoSecond[k] = (sumIm * sumIm + lessRe * lessRe) / 4
      }
    },
  }
}

/** Four points at a time: their own transform needs no multiplication. */
function joinFour(from: Complex, to: Complex, { part, stride }: Pass, roots: Complex): void {
  const { re, im } = from
  const apart = part * stride
  for (let p = 0; p < part; p++) {
    const c1 = roots.re[p * stride] as number
    const s1 = roots.im[p * stride] as number
    const c2 = roots.re[2 * p * stride] as number
    const s2 = roots.im[2 * p * stride] as number
    const c3 = roots.re[3 * p * stride] as number
    const s3 = roots.im[3 * p * stride] as number
    for (let q = 0; q < stride; q++) {
      const at = q + stride * p
      const evenRe = (re[at] as number) + (re[at + 2 * apart] as number)
      const evenIm = (im[at] as number) + (im[at + 2 * apart] as number)
      const evenLessRe = (re[at] as number) - (re[at + 2 * apart] as number)
      const evenLessIm = (im[at] as number) - (im[at + 2 * apart] as number)
      const oddRe = (re[at + apart] as number) + (re[at + 3 * apart] as number)
      const oddIm = (im[at + apart] as number) + (im[at + 3 * apart] as number)
      const oddLessRe = (re[at + apart] as number) - (re[at + 3 * apart] as number)
      const oddLessIm = (im[at + apart] as number) - (im[at + 3 * apart] as number)
      const target = q + stride * 4 * p
      to.re[target] = evenRe + oddRe
      to.im[target] = evenIm + oddIm
      turn(to, target + stride, evenLessRe + oddLessIm, evenLessIm - oddLessRe, c1, s1)
      turn(to, target + 2 * stride, evenRe - oddRe, evenIm - oddIm, c2, s2)
      turn(to, target + 3 * stride, evenLessRe - oddLessIm, evenLessIm + oddLessRe, c3, s3)
    }
  }
}

/** As many points as a prime says; those at j and at -j are taken together. */
function joinPrime(
  from: Complex,
  to: Complex,
  { radix, part, stride }: Pass,
  roots: Complex,
  room: Complex,
): void {
  const { re, im } = from
  const apart = part * stride
  const step = roots.re.length / radix
  for (let p = 0; p < part; p++) {
    for (let q = 0; q < stride; q++) {
      const at = q + stride * p
      for (let j = 0; j < radix; j++) {
        room.re[j] = re[at + j * apart] as number
        room.im[j] = im[at + j * apart] as number
      }
      const target = q + stride * radix * p
      for (let k = 0; k < radix; k++) {
        let sumRe = room.re[0] as number
        let sumIm = room.im[0] as number
        for (let j = 1, root = k; j < radix; j++) {
          const c = roots.re[root * step] as number
          const s = roots.im[root * step] as number
          sumRe += (room.re[j] as number) * c - (room.im[j] as number) * s
          sumIm += (room.re[j] as number) * s + (room.im[j] as number) * c
          root += k
          if (root >= radix) root -= radix
        }
        const twiddle = p * k * stride
        const c = roots.re[twiddle] as number
        turn(to, target + k * stride, sumRe, sumIm, c, roots.im[twiddle] as number)
      }
    }
  }
}

/** Puts a number, turned by a root of unity, into its place. */
function turn(to: Complex, place: number, re: number, im: number, cos: number, sin: number): void {
  to.re[place] = re * cos - im * sin
  to.im[place] = re * sin + im * cos
}

function complex(length: number): Complex {
  return { re: new Float64Array(length), im: new Float64Array(length) }
}

function rootsOfUnity(length: number): Complex {
  const angles = Array.from({ length }, (_, k) => (-2 * Math.PI * k) / length)
  return {
    re: Float64Array.from(angles, (angle) => Math.cos(angle)),
    im: Float64Array.from(angles, (angle) => Math.sin(angle)),
  }
}

function passesOf(length: number): readonly Pass[] {
  const passes: Pass[] = []
  let stride = 1
  const take = (radix: number): void => {
    for (; (length / stride) % radix === 0; stride *= radix) {
      passes.push({ radix, part: length / stride / radix, stride })
    }
  }
  take(4)
  for (let prime = 2; stride < length; prime++) take(prime)
  return passes
}
