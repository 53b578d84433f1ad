import { spawn } from 'node:child_process'
import { on, once } from 'node:events'
import { open, stat } from 'node:fs/promises'
import { createInterface } from 'node:readline'
import { Worker } from 'node:worker_threads'

import { CancelledError, failure, type ServiceError } from '#shared/errors.ts'

import { openWav } from './wav.ts'

/** Every decoder delivers one channel at this rate. */
export const SAMPLE_RATE = 16_000

const STALL_TIMEOUT_MS = 20_000
const PROBE_TIMEOUT_MS = 5000
const BYTES_PER_SAMPLE = 4
const NOTES_LENGTH_MAX = 16 * 1024
// Some seconds to some minutes of speech, for which a separate process is not worthwhile.
const UNCOUNTED_BYTES_MAX = 64 * 1024
// The limit of one chunk in FFmpeg's memory, larger than any upload: samples of several seconds
// each would grow to hundreds of megabytes at the models' rate.
const PIECE_BYTES_MAX = 32 * 1024 ** 2
// The limit of FFmpeg's memory: it reserves an entry for each sample that a file claims to have,
// and a file of a few hundred bytes can claim a million samples.
const DATA_BYTES_MAX = 512 * 1024 ** 2
// Containers that include their sound. FFmpeg also supports playlists and manifests, which name
// other files of this machine.
const CONTAINERS =
  'aac,ac3,aiff,amr,asf,au,avi,caf,eac3,flac,flv,loas,matroska,mov,mp3,mpeg,mpegts,ogg,w64,wav'

// The formats of the decoders in `decoders/`.
const BUILT_IN_FORMATS = 'WAV (PCM, A-law, µ-law), MP3, FLAC, Ogg and WebM (Opus, Vorbis, FLAC)'

/** The limits and the abort signal of a decoder. */
interface DecodeOptions {
  /** Longer clips are refused, by their header if it states a length, otherwise during decoding. */
  readonly secondsMax: number
  readonly signal: AbortSignal
}

/** Decodes an audio file to chunks of mono samples at 16 kHz. Stopping early stops the decoder. */
export type AudioDecoder = (path: string, options: DecodeOptions) => AsyncGenerator<Float32Array>

/**
 * The decoder of this machine: FFmpeg as a separate process if it is on the PATH, else the decoders
 * in `decoders/` in a separate thread, which support fewer formats. Plain WAV files need neither. A
 * decoder that delivers nothing for 20 s is stopped.
 */
export async function findAudioDecoder(): Promise<{ decode: AudioDecoder; name: string }> {
  const hasFfmpeg = await runsFfmpeg()
  const source = hasFfmpeg ? ffmpegSamples : threadSamples
  return {
    decode: (path, options) => limited(path, source, options),
    name: hasFfmpeg ? 'ffmpeg' : 'built-in',
  }
}

type SampleSource = (path: string, options: DecodeOptions) => AsyncGenerator<Float32Array>

async function* limited(
  path: string,
  source: SampleSource,
  options: DecodeOptions,
): AsyncGenerator<Float32Array> {
  const { secondsMax } = options
  if ((await oggSeconds(path)) > secondsMax) throw tooLong(secondsMax)
  const stall = new AbortController()
  const startTimer = () => setTimeout(() => stall.abort(), STALL_TIMEOUT_MS)
  let timer = startTimer()
  const signal = AbortSignal.any([options.signal, stall.signal])
  let samples = 0
  let wav: Awaited<ReturnType<typeof openWav>>
  try {
    wav = await openWav(path, SAMPLE_RATE)
    if (wav !== undefined && wav.seconds > secondsMax) throw tooLong(secondsMax)
    const pieces = wav?.samples(signal) ?? source(path, { secondsMax, signal })
    for await (const piece of pieces) {
      // Only the decoder's time is measured, because the consumer may be slow.
      clearTimeout(timer)
      samples += piece.length
      if (samples > secondsMax * SAMPLE_RATE) throw tooLong(secondsMax)
      yield piece
      timer = startTimer()
    }
  } catch (error) {
    if (options.signal.aborted) throw new CancelledError()
    throw stall.signal.aborted ? corrupted(error) : error
  } finally {
    clearTimeout(timer)
  }
  // A recording that was stopped at once is complete, but too short.
  if (samples === 0 && wav === undefined) throw corrupted()
}

async function* ffmpegSamples(
  path: string,
  { secondsMax, signal }: DecodeOptions,
): AsyncGenerator<Float32Array> {
  const output = ['-vn', '-sn', '-dn', '-ac', '1', '-ar', String(SAMPLE_RATE), '-f', 'f32le']
  const call = ffmpeg([...readingSound(path), ...output, '-threads', '1', 'pipe:1'])
  const child = spawn(...call, {
    stdio: ['ignore', 'pipe', 'pipe'],
    signal,
    killSignal: 'SIGKILL',
  })
  const exit = once(child, 'close')
  // The stream below reports a failed start or an abort; this only prevents an unhandled rejection.
  exit.catch(() => {})
  let rest: Buffer = Buffer.alloc(0)
  let notes = ''
  let isFirst = true
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    if (notes.length < NOTES_LENGTH_MAX) notes += text
  })
  try {
    for await (const chunk of child.stdout) {
      if (statedSeconds(notes) > secondsMax) throw tooLong(secondsMax)
      if (isFirst && statedSeconds(notes) === 0) await refuseLong(path, { secondsMax, signal })
      isFirst = false
      const bytes = rest.length === 0 ? (chunk as Buffer) : Buffer.concat([rest, chunk as Buffer])
      const whole = bytes.length - (bytes.length % BYTES_PER_SAMPLE)
      rest = bytes.subarray(whole)
      if (whole > 0) yield toSamples(bytes.subarray(0, whole))
    }
    const [code] = (await exit) as [number | null]
    if (code !== 0) throw corrupted()
  } finally {
    child.kill('SIGKILL')
  }
}

/** The call of FFmpeg with a memory limit, which a shell sets if there is one. */
function ffmpeg(args: readonly string[]): [command: string, args: readonly string[]] {
  if (process.platform === 'win32') return ['ffmpeg', args]
  // A lower limit of the system is kept.
  const script = `ulimit -d ${DATA_BYTES_MAX / 1024} 2>/dev/null; exec ffmpeg "$@"`
  return ['/bin/sh', ['-c', script, 'ffmpeg', ...args]]
}

function readingSound(path: string): string[] {
  return ['-nostdin', '-hide_banner', '-nostats', '-max_alloc', String(PIECE_BYTES_MAX)].concat(
    ['-protocol_whitelist', 'file', '-format_whitelist', CONTAINERS],
    ['-i', path, '-map', '0:a:0'],
  )
}

/**
 * Refuses recordings that are too long. Those that were written while recording state no length, so
 * their packets are counted first, without decoding: hours of silence take few bytes, but a long
 * time to decode.
 */
async function refuseLong(path: string, { secondsMax, signal }: DecodeOptions): Promise<void> {
  const { size } = await stat(path)
  if (size < UNCOUNTED_BYTES_MAX) return
  const counting = ['-c', 'copy', '-f', 'null', '-progress', 'pipe:1', '-']
  const child = spawn(...ffmpeg([...readingSound(path), ...counting]), {
    stdio: ['ignore', 'pipe', 'ignore'],
    signal,
    killSignal: 'SIGKILL',
  })
  const exit = once(child, 'close')
  // A recording without a packet count is limited while it is decoded.
  exit.catch(() => {})
  try {
    for await (const line of createInterface({ input: child.stdout })) {
      const [, us = '0'] = /^out_time_us=(\d+)$/.exec(line) ?? []
      if (Number(us) / 1e6 > secondsMax) throw tooLong(secondsMax)
    }
  } finally {
    child.kill('SIGKILL')
  }
}

/** The length that FFmpeg read from the header of a file; 0 if it has none or only estimates it. */
function statedSeconds(notes: string): number {
  const [, hours, minutes, seconds] = /Duration: (\d+):(\d\d):(\d\d)/.exec(notes) ?? []
  if (hours === undefined || notes.includes('Estimating duration from bitrate')) return 0
  return Number(hours) * 3600 + Number(minutes) * 60 + Number(seconds)
}

type ThreadAnswer = Float32Array | null | 'corrupted' | 'unsupported'

async function* threadSamples(
  path: string,
  { signal }: DecodeOptions,
): AsyncGenerator<Float32Array> {
  const thread = new Worker(new URL('./decode-thread.ts', import.meta.url), {
    workerData: { path, sampleRate: SAMPLE_RATE },
    resourceLimits: { maxOldGenerationSizeMb: 512 },
    stderr: true,
  })
  // Decoders print a line for every damaged frame, which must not reach the log.
  thread.stderr.resume()
  const answers = on(thread, 'message', { signal, close: ['exit', 'error'] })
  try {
    // The thread sends one chunk per request, so that at most one is in flight.
    thread.postMessage('next')
    for await (const [piece] of answers as AsyncIterable<[ThreadAnswer]>) {
      if (piece === null) return
      if (piece === 'corrupted') throw corrupted()
      if (piece === 'unsupported') throw needsFfmpeg()
      if (piece.length > 0) yield piece
      thread.postMessage('next')
    }
    throw corrupted()
  } finally {
    await thread.terminate()
  }
}

function toSamples(bytes: Buffer): Float32Array {
  const copy = new Uint8Array(bytes.length)
  copy.set(bytes)
  return new Float32Array(copy.buffer)
}

/**
 * The length of an Ogg file in seconds, by the granule position of its last page (RFC 3533, section
 * 6); 0 for other files. Hours of silence take few bytes, so this refuses them before they are
 * decoded.
 */
async function oggSeconds(path: string): Promise<number> {
  const file = await open(path, 'r')
  try {
    const { size } = await file.stat()
    const head = Buffer.alloc(OGG_HEAD_BYTES_MAX)
    await file.read(head, 0, head.length, 0)
    if (head.toString('latin1', 0, 4) !== 'OggS') return 0
    const tail = Buffer.alloc(Math.min(size, 66_000))
    await file.read(tail, 0, tail.length, size - tail.length)
    const page = tail.lastIndexOf('OggS')
    if (page < 0 || page + 14 > tail.length) return 0
    // Negative in a page in which no packet ends.
    const granule = Number(tail.readBigInt64LE(page + 6))
    const rate = oggRate(head.subarray(OGG_HEADER_BYTES + head.readUInt8(OGG_HEADER_BYTES - 1)))
    return rate > 0 ? Math.max(granule / rate, 0) : 0
  } finally {
    await file.close()
  }
}

const OGG_HEADER_BYTES = 27
// The header of a page, the longest segment table, and an identification header up to its rate.
const OGG_HEAD_BYTES_MAX = OGG_HEADER_BYTES + 255 + 16

/** Granules of one second by the first packet of a stream; 0 for other codecs. */
function oggRate(identification: Buffer): number {
  const name = identification.toString('latin1', 0, 8)
  if (name === 'OpusHead') return 48_000
  return name.startsWith('\u0001vorbis') ? identification.readUInt32LE(12) : 0
}

async function runsFfmpeg(): Promise<boolean> {
  const child = spawn(...ffmpeg(['-version']), { stdio: 'ignore', timeout: PROBE_TIMEOUT_MS })
  const [code] = (await once(child, 'close').catch(() => [null])) as [number | null]
  return code === 0
}

function tooLong(secondsMax: number): ServiceError {
  return failure.invalidRequest(
    `Audio file is too long. Maximum audio length is ${secondsMax} seconds.`,
    {
      param: 'file',
      code: 'audio_too_long',
    },
  )
}

function needsFfmpeg(): ServiceError {
  return failure.invalidRequest(
    `Unsupported audio format. Without FFmpeg this server accepts ${BUILT_IN_FORMATS}; AAC (M4A, MP4) and all others need FFmpeg on the workers' PATH.`,
    { param: 'file', code: 'unsupported_value' },
  )
}

function corrupted(cause?: unknown): ServiceError {
  return failure.invalidRequest('Audio file might be corrupted or unsupported.', {
    param: 'file',
    code: 'invalid_value',
    cause,
  })
}
