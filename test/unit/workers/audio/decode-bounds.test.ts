import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, expect, it } from 'vitest'

import { wavOf } from '#test/support/wav.ts'
import { findAudioDecoder } from '#workers/audio/decode.ts'

const { decode } = await findAudioDecoder()
const folder = await mkdtemp(join(tmpdir(), 'millrace-decode-bounds-'))

afterAll(() => rm(folder, { recursive: true }))

it('refuses two hours of one sample a second, which are 14 kB and 450 MB at 16 kHz', async () => {
  const path = join(folder, 'clip.wav')
  const sound = Float32Array.from(
    { length: 7000 },
    (_, at) => (((at * 7919) % 20_000) - 10_000) / 32_768,
  )
  await writeFile(path, wavOf(sound, 1))
  let samples = 0
  const decodeAll = async () => {
    const pieces = decode(path, { secondsMax: 7200, signal: new AbortController().signal })
    for await (const piece of pieces) samples += piece.length
  }
  await expect(decodeAll()).rejects.toMatchObject({ kind: 'invalidRequest', param: 'file' })
  expect(samples).toBe(0)
})
