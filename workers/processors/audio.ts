import { createWriteStream } from 'node:fs'
import { mkdir, mkdtemp, readdir, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { extname, join } from 'node:path'
import { pipeline } from 'node:stream/promises'

import type { Clock } from '#shared/clock.ts'
import type { AudioInput } from '#shared/contracts/audio.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'
import { CancelledError, failure } from '#shared/errors.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'
import type { AudioDecoder } from '#workers/audio/decode.ts'
import type { Recognizer } from '#workers/audio/recognizer.ts'

import type { JobTools } from './processor-row.ts'

/** A loaded model of audio queues. */
export interface AudioModel {
  readonly recognizer: Recognizer
  readonly decode: AudioDecoder
  readonly storage: ObjectStore
}

// The API refuses larger uploads; this only bounds the disk of a worker.
const CLIP_BYTES_MAX = 64 * 1024 ** 2
// Longer clips are refused; this bounds what a small file of silence can cost.
const CLIP_SECONDS_MAX = 7200
const FOLDER_PREFIX = 'millrace-audio-'
// No request runs longer than an hour.
const FOLDER_AGE_MS_MAX = 65 * 60_000

/** Transcribes or translates one clip. */
export async function processAudio(
  job: JobEnvelope<'audio'>,
  tools: JobTools<AudioModel, 'audio'>,
): Promise<void> {
  const { input } = job
  const { model, reply, signal, clock } = tools
  const begunMs = clock.now()
  model.recognizer.check(input)
  // The system's temporary folder may be missing.
  await mkdir(tmpdir(), { recursive: true })
  const folder = await mkdtemp(join(tmpdir(), FOLDER_PREFIX))
  try {
    const path = join(folder, fileName(input))
    await fetchClip(model.storage, input.audioKey, path, signal)
    const preparedMs = clock.now()
    const pieces = model.decode(path, { secondsMax: CLIP_SECONDS_MAX, signal })
    const ignored = model.recognizer.ignoredFields(input)
    const clip = announceFirst(pieces, () =>
      reply.started(0, { ...(ignored.length > 0 && { ignored }) }),
    )
    let windows = 0
    const spoken = await model.recognizer.transcribe(clip, input, {
      signal,
      onWindow(doneSamples, knownSamples, said) {
        windows += 1
        const rest = Math.ceil((knownSamples - doneSamples) / model.recognizer.windowSamples)
        reply.progress(windows, windows + rest, input.stream === true ? said : {})
      },
    })
    const completionTokens = spoken.segments.reduce((sum, { tokenIds }) => sum + tokenIds.length, 0)
    reply.result(
      spoken,
      { promptTokens: 0, completionTokens, cachedTokens: 0 },
      {
        queueMs: begunMs - job.enqueuedAtMs,
        prepareMs: preparedMs - begunMs,
        runMs: clock.now() - preparedMs,
      },
    )
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** Deletes the recordings that killed processes left on this machine. */
export async function sweepClips(clock: Clock): Promise<void> {
  // Without that folder there is nothing to delete.
  const names = await readdir(tmpdir()).catch(() => [])
  for (const name of names.filter((found) => found.startsWith(FOLDER_PREFIX))) {
    const path = join(tmpdir(), name)
    // Another process may sweep at the same time, and some folders may belong to another user.
    const modifiedAtMs = await stat(path).then(
      ({ mtimeMs }) => mtimeMs,
      () => Infinity,
    )
    if (clock.now() - modifiedAtMs <= FOLDER_AGE_MS_MAX) continue
    await rm(path, { recursive: true, force: true }).catch(() => {})
  }
}

/** A new name with the client's extension, which is the only sign of some formats. */
function fileName({ filename }: AudioInput): string {
  const extension = extname(filename).toLowerCase()
  return /^\.[a-z0-9]{1,5}$/.test(extension) ? `clip${extension}` : 'clip'
}

async function fetchClip(
  storage: ObjectStore,
  key: string,
  path: string,
  signal: AbortSignal,
): Promise<void> {
  const { body, totalBytes } = await storage.get(key)
  if (totalBytes > CLIP_BYTES_MAX) {
    body.destroy()
    throw failure.tooLarge('The audio file is too large.', { param: 'file' })
  }
  try {
    await pipeline(body, createWriteStream(path), { signal })
  } catch (error) {
    throw signal.aborted ? new CancelledError() : error
  }
}

/** The job counts as started when its file has proven to be valid. */
async function* announceFirst(
  pieces: AsyncIterable<Float32Array>,
  announce: () => void,
): AsyncGenerator<Float32Array> {
  let isFirst = true
  for await (const piece of pieces) {
    if (isFirst) announce()
    isFirst = false
    yield piece
  }
}
