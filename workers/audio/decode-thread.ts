import { readFile, stat } from 'node:fs/promises'
import { parentPort, workerData } from 'node:worker_threads'

import { decodeFile } from './decoders/decode-file.ts'
import { type Pcm, UnsupportedAudioError } from './decoders/pcm.ts'
import { createResampler, type Resampler } from './resample.ts'

// Uploads have at most 25 MiB. The whole file is in memory while it is decoded.
const FILE_BYTES_MAX = 64 * 1024 ** 2
// Speech needs higher rates. At lower ones, samples of several seconds would grow without limit at
// the models' rate.
const RATE_MIN = 1000
const RATE_MAX = 768_000

/** Decodes a file in this thread. Sends one chunk of samples per message, then null. */
async function* samplesOf(path: string, sampleRate: number): AsyncGenerator<Float32Array> {
  if ((await stat(path)).size > FILE_BYTES_MAX) throw new Error('file is too large')
  const bytes = await readFile(path)
  let resampler: { readonly from: number; readonly to: Resampler } | undefined
  for await (const pcm of decodeFile(bytes)) {
    if (pcm.sampleRate < RATE_MIN || pcm.sampleRate > RATE_MAX)
      throw new Error('absurd sample rate')
    if (resampler?.from !== pcm.sampleRate) {
      if (resampler !== undefined) yield resampler.to.flush()
      resampler = { from: pcm.sampleRate, to: createResampler(pcm.sampleRate, sampleRate) }
    }
    yield resampler.to.push(mixDown(pcm))
  }
  if (resampler !== undefined) yield resampler.to.flush()
}

function mixDown({ channels }: Pcm): Float32Array {
  const mono = new Float32Array(channels[0]?.length ?? 0)
  for (let at = 0; at < mono.length; at += 1) {
    let sum = 0
    for (const channel of channels) sum += channel[at] ?? 0
    const value = sum / channels.length
    // Damaged packets may decode to any value.
    mono[at] = Number.isFinite(value) ? Math.max(-1, Math.min(1, value)) : 0
  }
  return mono
}

const { path, sampleRate } = workerData as { path: string; sampleRate: number }
const pieces = samplesOf(path, sampleRate)
parentPort?.on('message', () => {
  pieces.next().then(
    ({ value, done }) => parentPort?.postMessage(done === true ? null : value),
    (error: unknown) =>
      parentPort?.postMessage(error instanceof UnsupportedAudioError ? 'unsupported' : 'corrupted'),
  )
})
