import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, expect, it } from 'vitest'

import { findAudioDecoder } from '#workers/audio/decode.ts'

const { decode } = await findAudioDecoder()
const folder = await mkdtemp(join(tmpdir(), 'millrace-decode-bounds-'))

afterAll(() => rm(folder, { recursive: true }))

it('refuses two hours of one sample a second, which are 14 kB and 450 MB at 16 kHz', async () => {
  const path = join(folder, 'clip.wav')
  await writeFile(path, wavOf({ sampleRate: 1, samples: 7000 }))
  let samples = 0
  const hear = async () => {
    const pieces = decode(path, { secondsMax: 7200, signal: new AbortController().signal })
    for await (const piece of pieces) samples += piece.length
  }
  await expect(hear()).rejects.toMatchObject({ kind: 'invalidRequest', param: 'file' })
  expect(samples).toBe(0)
})

/** A WAV file of 16 bits and one channel, with something to hear. */
function wavOf({ sampleRate, samples }: { sampleRate: number; samples: number }): Buffer {
  const file = Buffer.alloc(44 + 2 * samples)
  file.write('RIFF')
  file.writeUInt32LE(file.length - 8, 4)
  file.write('WAVEfmt ', 8)
  file.writeUInt32LE(16, 16)
  file.writeUInt16LE(1, 20)
  file.writeUInt16LE(1, 22)
  file.writeUInt32LE(sampleRate, 24)
  file.writeUInt32LE(2 * sampleRate, 28)
  file.writeUInt16LE(2, 32)
  file.writeUInt16LE(16, 34)
  file.write('data', 36)
  file.writeUInt32LE(2 * samples, 40)
  for (let at = 0; at < samples; at++)
    file.writeInt16LE(((at * 7919) % 20_000) - 10_000, 44 + 2 * at)
  return file
}
