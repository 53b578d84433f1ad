import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { promisify } from 'node:util'

import type { SpeechFormat } from '#shared/contracts/speech.ts'
import { CancelledError } from '#shared/errors.ts'
import { createResampler } from '#workers/audio/resample.ts'

/** Samples of one channel and how to encode them. */
interface SpeechSource {
  readonly samples: AsyncIterable<Float32Array>
  readonly sampleRate: number
  readonly format: SpeechFormat
  readonly signal: AbortSignal
}

/** Encodes speech in the formats of this machine. */
export interface SpeechEncoder {
  readonly formats: readonly SpeechFormat[]
  encode(source: SpeechSource): AsyncIterable<Buffer>
}

/** The rate of `pcm`, which has no header that could state another. */
const PCM_RATE = 24_000
const PROBE_TIMEOUT_MS = 5000
// A part of the encoder's memory.
const ALLOCATION_BYTES_MAX = 32 * 1024 ** 2
const NATIVE = ['wav', 'pcm'] as const

/** FFmpeg's encoder of each format and the arguments of its output. */
const FFMPEG: Readonly<
  Record<Exclude<SpeechFormat, (typeof NATIVE)[number]>, readonly [string, ...string[]]>
> = {
  mp3: ['libmp3lame', '-b:a', '64k', '-write_xing', '0', '-f', 'mp3'],
  opus: ['libopus', '-b:a', '32k', '-page_duration', '20000', '-f', 'ogg'],
  aac: ['aac', '-b:a', '64k', '-f', 'adts'],
  flac: ['flac', '-f', 'flac'],
}

/** The encoder of this machine: FFmpeg where it is on the PATH; `wav` and `pcm` need none. */
export async function findSpeechEncoder(): Promise<SpeechEncoder> {
  const known = await ffmpegEncoders()
  const formats = Object.entries(FFMPEG)
    .filter(([, [name]]) => known.has(name))
    .map(([format]) => format as SpeechFormat)
  return {
    formats: [...formats, ...NATIVE],
    encode(source) {
      if (source.format === 'wav' || source.format === 'pcm') return encodeNative(source)
      return encodeByFfmpeg(source, FFMPEG[source.format])
    },
  }
}

async function ffmpegEncoders(): Promise<ReadonlySet<string>> {
  const listing = promisify(execFile)('ffmpeg', ['-hide_banner', '-encoders'], {
    timeout: PROBE_TIMEOUT_MS,
  })
  const { stdout } = await listing.catch(() => ({ stdout: '' }))
  return new Set(stdout.split('\n').map((line) => line.trim().split(/\s+/)[1] ?? ''))
}

async function* encodeNative({
  samples,
  sampleRate,
  format,
}: SpeechSource): AsyncGenerator<Buffer> {
  const rate = format === 'pcm' ? PCM_RATE : sampleRate
  if (format === 'wav') yield wavHeader(rate)
  const resampler = createResampler(sampleRate, rate)
  for await (const piece of samples) yield to16Bit(resampler.push(piece))
  yield to16Bit(resampler.flush())
}

/** A header without lengths, which are unknown when the first samples leave. */
function wavHeader(rate: number): Buffer {
  const header = Buffer.alloc(44)
  header.write('RIFF', 0, 'latin1')
  header.writeUInt32LE(0xff_ff_ff_ff, 4)
  header.write('WAVEfmt ', 8, 'latin1')
  header.writeUInt32LE(16, 16)
  header.writeUInt16LE(1, 20) // PCM
  header.writeUInt16LE(1, 22) // one channel
  header.writeUInt32LE(rate, 24)
  header.writeUInt32LE(2 * rate, 28)
  header.writeUInt16LE(2, 32) // bytes of a sample
  header.writeUInt16LE(16, 34) // bits of a sample
  header.write('data', 36, 'latin1')
  header.writeUInt32LE(0xff_ff_ff_ff, 40)
  return header
}

function to16Bit(samples: Float32Array): Buffer {
  const bytes = Buffer.allocUnsafe(2 * samples.length)
  // An iterator of entries would allocate an object per sample.
  for (let index = 0; index < samples.length; index++) {
    const sample = samples[index] as number
    bytes.writeInt16LE(Math.round(Math.max(-1, Math.min(1, sample)) * 32_767), 2 * index)
  }
  return bytes
}

/** FFmpeg reads samples and writes bytes through pipes; it opens no file and no address. */
async function* encodeByFfmpeg(
  { samples, sampleRate, signal }: SpeechSource,
  [encoder, ...output]: readonly [string, ...string[]],
): AsyncGenerator<Buffer> {
  const child = spawn(
    'ffmpeg',
    ['-nostdin', '-hide_banner', '-loglevel', 'error', '-max_alloc', String(ALLOCATION_BYTES_MAX)]
      .concat(['-protocol_whitelist', 'pipe', '-f', 'f32le', '-ar', String(sampleRate), '-ac', '1'])
      .concat(['-i', 'pipe:0', '-c:a', encoder, '-threads', '1', '-map_metadata', '-1'])
      .concat(['-flags', '+bitexact', '-fflags', '+bitexact', '-flush_packets', '1', ...output])
      .concat('pipe:1'),
    { stdio: ['pipe', 'pipe', 'ignore'], signal, killSignal: 'SIGKILL' },
  )
  const exit = once(child, 'close')
  // The loop below reports a failed start or an abort; this only prevents an unhandled rejection.
  exit.catch(() => {})
  const feeding = pipeline(Readable.from(bytesOf(samples)), child.stdin, { signal })
  feeding.catch(() => child.kill('SIGKILL'))
  try {
    for await (const chunk of child.stdout) yield chunk as Buffer
    // An error of the model is thrown here, before FFmpeg's own.
    await feeding
    const [code] = (await exit) as [number | null]
    if (code !== 0) throw new Error(`ffmpeg could not encode speech: it ended with ${code}`)
  } catch (error) {
    throw signal.aborted ? new CancelledError() : error
  } finally {
    child.kill('SIGKILL')
  }
}

async function* bytesOf(samples: AsyncIterable<Float32Array>): AsyncGenerator<Buffer> {
  for await (const { buffer, byteOffset, byteLength } of samples) {
    yield Buffer.from(buffer, byteOffset, byteLength)
  }
}
