// Zero crossings of the sinc on either side: −80 dB of aliasing with the Kaiser window below.
const ZERO_CROSSINGS = 24
const KAISER_BETA = 8

/** A resampler that takes a signal in chunks. */
export interface Resampler {
  /** The output that is determined by the input so far. */
  push(samples: Float32Array): Float32Array
  /** The remaining output, which depended on later input. */
  flush(): Float32Array
}

/** Band-limited resampling with a windowed sinc (Smith, “Digital Audio Resampling”, 2002). */
export function createResampler(fromRate: number, toRate: number): Resampler {
  if (fromRate === toRate) return { push: (samples) => samples, flush: () => new Float32Array(0) }
  const step = fromRate / toRate
  // When downsampling, frequencies above the new Nyquist limit are cut off.
  const cutoff = Math.min(1, toRate / fromRate)
  const reach = Math.ceil(ZERO_CROSSINGS / cutoff)
  const kernel = sampleKernel(cutoff, reach)
  let held: Float32Array<ArrayBufferLike> = new Float32Array(reach)
  let heldStart = -reach
  let produced = 0

  function produceUntil(end: number): Float32Array {
    const output: number[] = []
    for (let at = produced * step; at + reach < end; at = produced * step) {
      output.push(interpolate(held, at - heldStart, kernel, reach))
      produced += 1
    }
    const keepFrom = Math.max(0, Math.floor(produced * step) - reach - heldStart)
    held = held.slice(keepFrom)
    heldStart += keepFrom
    return Float32Array.from(output)
  }

  function append(samples: Float32Array): void {
    const joined = new Float32Array(held.length + samples.length)
    joined.set(held)
    joined.set(samples, held.length)
    held = joined
  }

  return {
    push(samples) {
      append(samples)
      return produceUntil(heldStart + held.length)
    },
    flush() {
      const end = heldStart + held.length
      append(new Float32Array(2 * reach))
      const rest = produceUntil(end + 2 * reach)
      const wanted = Math.max(0, Math.ceil(end / step) - (produced - rest.length))
      return rest.subarray(0, wanted)
    },
  }
}

// Positions of the kernel between two input samples; linear interpolation fills the gaps.
const PHASES = 256

function sampleKernel(cutoff: number, reach: number): Float64Array {
  return Float64Array.from({ length: reach * PHASES + 2 }, (_, i) => {
    const x = i / PHASES
    if (x >= reach) return 0
    const angle = Math.PI * x * cutoff
    const sinc = x === 0 ? 1 : Math.sin(angle) / angle
    return (
      cutoff * sinc * (bessel(KAISER_BETA * Math.sqrt(1 - (x / reach) ** 2)) / bessel(KAISER_BETA))
    )
  })
}

/** The modified Bessel function of order zero, by its power series. */
function bessel(x: number): number {
  let sum = 1
  let term = 1
  for (let k = 1; k < 40; k++) {
    term *= (x / (2 * k)) ** 2
    sum += term
  }
  return sum
}

function interpolate(
  samples: Float32Array,
  at: number,
  kernel: Float64Array,
  reach: number,
): number {
  const first = Math.max(0, Math.ceil(at - reach))
  const last = Math.min(samples.length - 1, Math.floor(at + reach))
  let sum = 0
  for (let i = first; i <= last; i++) {
    const position = Math.abs(at - i) * PHASES
    const below = Math.floor(position)
    const low = kernel[below] as number
    sum +=
      (samples[i] as number) * (low + ((kernel[below + 1] as number) - low) * (position - below))
  }
  return sum
}
