import { expect, it } from 'vitest'

import { planFft } from '#workers/audio/fft.ts'

/** As the definition says, one frequency after another. */
function plainPower(signal: Float64Array): number[] {
  return Array.from({ length: Math.floor(signal.length / 2) + 1 }, (_, k) => {
    let re = 0
    let im = 0
    for (const [n, value] of signal.entries()) {
      const angle = (-2 * Math.PI * k * n) / signal.length
      re += value * Math.cos(angle)
      im += value * Math.sin(angle)
    }
    return re * re + im * im
  })
}

const noise = (length: number, seed: number) =>
  Float64Array.from({ length }, (_, i) => Math.sin(i * i * 0.7 + seed) + 0.3 * seed)

it.each([1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 20, 30, 49, 64, 97, 160, 400, 512])(
  'gives the power spectra of two signals of %i samples at once',
  (length) => {
    const signals = [noise(length, 1), noise(length, 2)] as const
    const room = () => new Float64Array(Math.floor(length / 2) + 1)
    const powers = [room(), room()] as const
    planFft(length).powers(signals, powers)
    for (const side of [0, 1] as const) {
      const expected = plainPower(signals[side]).map((power) => expect.closeTo(power, 6))
      expect([...powers[side]]).toEqual(expected)
    }
  },
)
