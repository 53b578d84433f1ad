/** Transforms `size / 2` coefficients into `size` samples. */
type InverseMdct = (coefficients: Float32Array) => Float32Array

/**
 * The inverse MDCT of Vorbis I without a scale:
 *   y[n] = Σ X[k] cos(π/M (n + ½ + M/2)(k + ½)),  M = size / 2.
 * It is a DCT-IV whose output is unfolded; the DCT-IV is a complex FFT of M / 2 points between two
 * rotations.
 */
export function createInverseMdct(size: number): InverseMdct {
  const half = size / 2
  const points = half / 2
  const rotation = Array.from({ length: points }, (_, k) => (-Math.PI * (8 * k + 1)) / (8 * half))
  const cosines = Float64Array.from(rotation, Math.cos)
  const sines = Float64Array.from(rotation, Math.sin)
  const transform = createFft(points)
  const re = new Float64Array(points)
  const im = new Float64Array(points)
  const dct = new Float64Array(half)

  return (coefficients) => {
    for (let k = 0; k < points; k += 1) {
      const a = coefficients[2 * k] ?? 0
      const b = coefficients[half - 1 - 2 * k] ?? 0
      const c = cosines[k] ?? 0
      const s = sines[k] ?? 0
      re[k] = a * c - b * s
      im[k] = a * s + b * c
    }
    transform(re, im)
    for (let k = 0; k < points; k += 1) {
      const a = re[k] ?? 0
      const b = im[k] ?? 0
      const c = cosines[k] ?? 0
      const s = sines[k] ?? 0
      dct[2 * k] = a * c - b * s
      dct[half - 1 - 2 * k] = -(a * s + b * c)
    }
    return unfold(dct)
  }
}

/** The DCT-IV is even about its start and odd about its end. */
function unfold(dct: Float64Array): Float32Array {
  const half = dct.length
  const samples = new Float32Array(2 * half)
  for (let n = 0; n < 2 * half; n += 1) {
    const at = n + half / 2
    if (at < half) samples[n] = dct[at] ?? 0
    else if (at < 2 * half) samples[n] = -(dct[2 * half - 1 - at] ?? 0)
    else samples[n] = -(dct[at - 2 * half] ?? 0)
  }
  return samples
}

/** An in-place complex FFT; the number of points is a power of two. */
function createFft(points: number): (re: Float64Array, im: Float64Array) => void {
  const levels = Math.log2(points)
  const swaps = Uint32Array.from({ length: points }, (_, at) => {
    let reversed = 0
    for (let bit = 0; bit < levels; bit += 1) reversed |= ((at >> bit) & 1) << (levels - 1 - bit)
    return reversed
  })
  const angles = Array.from({ length: points / 2 }, (_, k) => (-2 * Math.PI * k) / points)
  const cosines = Float64Array.from(angles, Math.cos)
  const sines = Float64Array.from(angles, Math.sin)
  return (re, im) => {
    for (let at = 0; at < points; at += 1) {
      const other = swaps[at] ?? 0
      if (other <= at) continue
      const x = re[at] ?? 0
      const y = im[at] ?? 0
      re[at] = re[other] ?? 0
      im[at] = im[other] ?? 0
      re[other] = x
      im[other] = y
    }
    for (let width = 1; width < points; width *= 2) {
      const stride = points / (2 * width)
      for (let start = 0; start < points; start += 2 * width) {
        for (let k = 0; k < width; k += 1) {
          // No destructuring here: its arrays would take most of the time.
          const c = cosines[k * stride] ?? 0
          const s = sines[k * stride] ?? 0
          const a = start + k
          const b = a + width
          const x = re[b] ?? 0
          const y = im[b] ?? 0
          const tr = x * c - y * s
          const ti = x * s + y * c
          const ur = re[a] ?? 0
          const ui = im[a] ?? 0
          re[a] = ur + tr
          im[a] = ui + ti
          re[b] = ur - tr
          im[b] = ui - ti
        }
      }
    }
  }
}
