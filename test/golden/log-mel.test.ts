import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { afterAll, expect, it } from 'vitest'

import { openLogMel } from '#workers/audio/mel.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

/** Features of the reference implementation; made by make-log-mel.py. */
interface GoldenFeatures {
  readonly melBins: number
  readonly chunkSeconds: number
  readonly seconds: number
  readonly frames: number
  readonly mean: number
  readonly columns: Readonly<Record<string, readonly number[]>>
}

const CASES: readonly GoldenFeatures[] = JSON.parse(
  readFileSync(join(import.meta.dirname, 'log-mel.json'), 'utf8'),
)

const runtime = openRuntime()
afterAll(() => runtime.close())

it.each(CASES)(
  'computes the features of $seconds s in a $chunkSeconds s window with $melBins bins',
  async (golden) => {
    const mel = await openLogMel(runtime, {
      sampleRate: 16_000,
      windowSamples: 400,
      hopSamples: 160,
      melBins: golden.melBins,
      chunkSamples: golden.chunkSeconds * 16_000,
    })
    const features = await mel.extract(signal(golden.seconds))
    expect(features).toHaveLength(golden.melBins * golden.frames)
    expect(features.reduce((sum, value) => sum + value, 0) / features.length).toBeCloseTo(
      golden.mean,
      4,
    )
    for (const [column, values] of Object.entries(golden.columns)) {
      for (const [bin, value] of values.entries()) {
        expect(features[bin * golden.frames + Number(column)]).toBeCloseTo(value, 3)
      }
    }
  },
)

/** The samples of make-log-mel.py. */
function signal(seconds: number): Float32Array {
  return Float32Array.from({ length: Math.floor(seconds * 16_000) }, (_, i) => {
    const time = i / 16_000
    const rising = 0.4 * Math.sin(2 * Math.PI * (200 + 300 * time) * time)
    return rising + 0.1 * Math.sin(2 * Math.PI * 3000 * time) * (time % 1 < 0.5 ? 1 : 0)
  })
}
