import { open } from 'node:fs/promises'
import { parentPort, workerData } from 'node:worker_threads'

import decode, { type AudioData, type StreamDecoder } from 'audio-decode'
import detectType from 'audio-type'

import { createResampler, type Resampler } from './resample.ts'

// Small pieces, so that the other side can stop a decoder whose output runs away.
const CHUNK_BYTES = 16 * 1024
// Nobody can be heard at less, and samples that last seconds each would grow beyond all bounds.
const RATE_MIN = 1000

/** Decodes a file in this thread; sends one piece of samples for each message, then null. */
async function* samplesOf(path: string, sampleRate: number): AsyncGenerator<Float32Array> {
  const file = await open(path, 'r')
  let decoder: StreamDecoder | undefined
  let resampler: Resampler | undefined
  const convert = (audio: AudioData): Float32Array => {
    const mono = mixDown(audio.channelData)
    if (mono.length === 0) return mono
    if (audio.sampleRate < RATE_MIN) throw new Error('no recording has so few samples a second')
    resampler ??= createResampler(audio.sampleRate, sampleRate)
    return resampler.push(mono)
  }
  try {
    const chunks = file.createReadStream({ autoClose: false })
    let pending: Uint8Array<ArrayBufferLike> = new Uint8Array(0)
    for await (const read of chunks) {
      pending = concat(pending, read as Uint8Array)
      decoder ??= await decoderFor(pending)
      for (let start = 0; start < pending.length; start += CHUNK_BYTES) {
        yield convert(await decoder(pending.subarray(start, start + CHUNK_BYTES)))
      }
      pending = new Uint8Array(0)
    }
    if (decoder !== undefined) yield convert(await decoder())
    if (resampler !== undefined) yield resampler.flush()
  } finally {
    await file.close()
  }
}

async function decoderFor(head: Uint8Array): Promise<StreamDecoder> {
  const type = detectType(head)
  const create = (decode as unknown as Record<string, (() => Promise<StreamDecoder>) | undefined>)[
    String(type)
  ]
  if (create === undefined) throw new Error('no decoder for this format')
  return create()
}

function mixDown(channels: readonly Float32Array[]): Float32Array {
  const [first, ...others] = channels
  if (first === undefined || others.length === 0) return first ?? new Float32Array(0)
  return first.map(
    (value, i) => others.reduce((sum, channel) => sum + (channel[i] ?? 0), value) / channels.length,
  )
}

function concat(a: Uint8Array, b: Uint8Array): Uint8Array {
  if (a.length === 0) return b
  const joined = new Uint8Array(a.length + b.length)
  joined.set(a)
  joined.set(b, a.length)
  return joined
}

const { path, sampleRate } = workerData as { path: string; sampleRate: number }
const pieces = samplesOf(path, sampleRate)
parentPort?.on('message', () => {
  pieces.next().then(
    ({ value, done }) => parentPort?.postMessage(done === true ? null : value),
    () => parentPort?.postMessage('corrupted'),
  )
})
