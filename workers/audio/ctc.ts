import type { AudioResult, AudioSegment } from '#shared/contracts/audio.ts'
import { readOperators } from '#workers/graph/operators.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'

import { type CtcFiles, readCtcFiles } from './ctc-files.ts'
import { type CtcFrames, openFrameReader } from './ctc-frames.ts'
import { CtcReader, type CtcWord } from './ctc-words.ts'
import { SAMPLE_RATE } from './decode.ts'
import { readWindows } from './read-windows.ts'
import type { SpeechRequest, SpeechTools } from './recognizer.ts'
import { checkTranscription, type Recognizer } from './recognizer.ts'
import { roundToHundredths, seekFramesOf } from './segments.ts'
import { normalizeWave, openWaveModel, type WaveModel } from './wave-model.ts'
import { compressionRatioOf } from './window-answer.ts'

/** Options of a CTC model. */
interface CtcOptions {
  readonly runtime: Runtime
  readonly folder: string
  readonly onnxFile?: string
  readonly session?: SessionOptions
  readonly windowSeconds?: number
}

interface Parts {
  readonly files: CtcFiles
  readonly model: WaveModel<CtcFrames>
  readonly windows: Windows
}

/** The windows of a recording, which overlap by two margins; all are whole frames. */
interface Windows {
  readonly samplesPerFrame: number
  readonly frames: number
  /** Frames at an end of a window that the neighbouring window recognizes with more context. */
  readonly marginFrames: number
}

// The memory of the first convolutions grows with it: 512 channels take 80 MB for this window.
const WINDOW_SECONDS = 12
// The share of a window at each end, as in transformers' pipeline.
const MARGIN_SHARE = 1 / 6
const PAUSE_SECONDS_MIN = 1

/** Loads a CTC model in the hub layout, such as wav2vec2 or HuBERT. Throws `ModelLoadError`. */
export async function openCtc(options: CtcOptions): Promise<Recognizer> {
  const { runtime, folder, onnxFile, session } = options
  const files = await readCtcFiles(folder, onnxFile)
  const model = await openWaveModel<CtcFrames>({
    runtime,
    file: files.modelFile,
    output: 'logits',
    pads: files.ignoresPadding,
    isRowCoupled: (await readOperators(files.modelFile)).hasDynamicQuantization,
    ...(session && { session }),
    openReader: (type) => openFrameReader(runtime, type, (samples) => countFrames(files, samples)),
  })
  const windows = windowsOf(files, options.windowSeconds ?? WINDOW_SECONDS)
  const parts = { files, model, windows }
  return {
    windowSamples: stepOf(windows),
    modelFiles: [files.modelFile],
    check: checkTranscription,
    ignoredFields,
    transcribe: (clip, request, tools) => transcribe(parts, clip, request, tools),
    close: () => model.close(),
  }
}

/** Only the sound determines the text. */
function ignoredFields({ prompt, temperature, language }: SpeechRequest): readonly string[] {
  return [
    ...(prompt.trim() === '' ? [] : ['prompt']),
    ...(temperature === 0 ? [] : ['temperature']),
    ...(language === null ? [] : ['language']),
  ]
}

function countFrames({ convolutions }: CtcFiles, samples: number): number {
  return convolutions.reduce(
    (length, { kernel, stride }) => Math.max(0, Math.floor((length - kernel) / stride) + 1),
    samples,
  )
}

function windowsOf({ convolutions }: CtcFiles, seconds: number): Windows {
  const samplesPerFrame = convolutions.reduce((product, { stride }) => product * stride, 1)
  const frames = (seconds * SAMPLE_RATE) / samplesPerFrame
  return {
    samplesPerFrame,
    frames: Math.max(1, Math.round(frames)),
    marginFrames: Math.round(frames * MARGIN_SHARE),
  }
}

function stepOf({ frames, marginFrames, samplesPerFrame }: Windows): number {
  return Math.max(1, frames - 2 * marginFrames) * samplesPerFrame
}

/**
 * Windows overlap. Frames at the end of a window, which lack the sound beyond, are taken from its
 * neighbour. All other frames form one row, so that words are neither cut nor doubled.
 */
async function transcribe(
  { files, model, windows }: Parts,
  clip: AsyncIterable<Float32Array>,
  request: SpeechRequest,
  tools: SpeechTools,
): Promise<AudioResult> {
  checkTranscription(request)
  const { samplesPerFrame, frames, marginFrames } = windows
  const windowSamples = frames * samplesPerFrame
  const reader = new CtcReader(files.tokens)
  const read = await readWindows(clip, {
    ...tools,
    windowSamples,
    async recognize(samples, seek) {
      const isLast = samples.length < windowSamples
      const wave = files.isNormalized ? normalizeWave(samples) : samples
      const { tokenIds, logprobs } = await model.run(wave, tools.signal)
      const from = seek === 0 ? 0 : marginFrames
      const to = isLast ? tokenIds.length : frames - marginFrames
      const kept = { tokenIds: tokenIds.slice(from, to), logprobs: logprobs.slice(from, to) }
      const words = reader.push(kept, seek / samplesPerFrame + from)
      if (isLast) words.push(...reader.flush())
      const secondsAt = (frame: number) => (frame * samplesPerFrame) / SAMPLE_RATE
      return {
        segments: presentSegments(words, secondsAt, seek),
        ...(request.wordTimestamps && {
          words: words.map(({ text, start, end }) => ({
            word: text,
            start: roundToHundredths(secondsAt(start)),
            end: roundToHundredths(secondsAt(end)),
          })),
        }),
        ...(request.logprobs === true && { logprobs: words.flatMap((word) => word.logprobs) }),
        advance: isLast ? samples.length : stepOf(windows),
      }
    },
  })
  return { ...read, language: request.language }
}

/** The words of a window, cut at pauses. */
function presentSegments(
  words: readonly CtcWord[],
  secondsAt: (frame: number) => number,
  seek: number,
): readonly AudioSegment[] {
  const groups: CtcWord[][] = []
  for (const word of words) {
    const before = groups.at(-1)?.at(-1)
    const isPause =
      before === undefined || secondsAt(word.start) - secondsAt(before.end) >= PAUSE_SECONDS_MIN
    if (isPause) groups.push([word])
    else groups.at(-1)?.push(word)
  }
  return groups.map((group) => {
    const text = group.map((word) => (word.isSpaced ? ` ${word.text}` : word.text)).join('')
    const logprobs = group.flatMap((word) => word.logprobs)
    return {
      seekFrames: seekFramesOf(seek),
      start: roundToHundredths(secondsAt(group[0]?.start ?? 0)),
      end: roundToHundredths(secondsAt(group.at(-1)?.end ?? 0)),
      text,
      tokenIds: group.flatMap(({ tokenIds }) => tokenIds),
      temperature: 0,
      averageLogprob: logprobs.reduce((sum, { logprob }) => sum + logprob, 0) / logprobs.length,
      compressionRatio: compressionRatioOf(text),
      noSpeechProbability: 0,
    }
  })
}
