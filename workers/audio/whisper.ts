import type { AudioResult, AudioSegment } from '#shared/contracts/audio.ts'
import { CancelledError, failure } from '#shared/errors.ts'
import { readOperators } from '#workers/graph/operators.ts'
import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'
import { contentOnly } from '#workers/text/content-spans.ts'
import { decodeTokens } from '#workers/text/detokenizer.ts'
import { createTokenizer, type Tokenizer } from '#workers/text/tokenizer.ts'

import { type AnswerDecoder, createAnswerDecoder } from './answer-decoder.ts'
import { SAMPLE_RATE } from './decode.ts'
import { SampleReader } from './sample-reader.ts'
import { cutWindow, roundToHundredths } from './segments.ts'
import type { TokenRule } from './token-rules.ts'
import { allowOnly, suppress, suppressAtBegin, timestampRules } from './token-rules.ts'
import { openWhisperDecoder, type WindowStates } from './whisper-decoder.ts'
import { readWhisperFiles, type WhisperFiles } from './whisper-files.ts'
import {
  checkSpeechTask,
  findWhisperTokens,
  type SpeechTask,
  startTokens,
  type WhisperTokens,
} from './whisper-tokens.ts'
import { answerWindow, type WindowAnswer } from './window-answer.ts'
import { openWindowEncoder, type WindowEncoder } from './window-encoder.ts'

/** The parameters of one clip. */
interface SpeechRequest extends SpeechTask {
  readonly prompt: string
  readonly temperature: number
}

/** The abort signal and the progress callback of a clip. */
interface SpeechTools {
  readonly signal: AbortSignal
  /**
   * Called after each window: processed samples, samples known so far, and the text of the window.
   */
  onWindow?(doneSamples: number, knownSamples: number, text: string): void
}

/** A loaded speech model; clips that run at the same time share batches. */
export interface Whisper {
  /** Samples of one window. */
  readonly windowSamples: number
  /** Description of the loaded model. */
  readonly modelFiles: readonly string[]
  /** Throws `invalidRequest` for a task or language that the model does not support. */
  check(request: SpeechTask): void
  /** Throws `audio_too_short`, and passes on errors thrown by the clip's decoder. */
  transcribe(
    clip: AsyncIterable<Float32Array>,
    request: SpeechRequest,
    tools: SpeechTools,
  ): Promise<Omit<AudioResult, 'words'>>
  close(): Promise<void>
}

/** Options of a speech model. */
interface WhisperOptions {
  readonly runtime: Runtime
  readonly folder: string
  readonly onnxFile?: string
  readonly session?: SessionOptions
}

/** The parts of a loaded model. */
interface Parts {
  readonly files: WhisperFiles
  readonly tokenizer: Tokenizer
  readonly tokens: WhisperTokens
  readonly rules: readonly TokenRule[]
  readonly encoder: WindowEncoder
  readonly answers: AnswerDecoder
}

const SECONDS_MIN = 0.1
// Above this temperature, the text of a window does not help the next one.
const TRUSTED_TEMPERATURE_MAX = 0.5

/** Loads a Whisper model in the hub layout: any size, English-only or multilingual. */
export async function openWhisper(options: WhisperOptions): Promise<Whisper> {
  const { runtime, folder, onnxFile, session } = options
  const files = await readWhisperFiles(folder, onnxFile)
  if (files.mel.sampleRate !== SAMPLE_RATE) {
    throw new ModelLoadError(folder, `${files.mel.sampleRate} samples a second are not supported`)
  }
  // Timestamps and languages are markers, too, whether or not the file calls them special.
  const { tokenizerJson, tokenizerConfig } = files
  const tokenizer = createTokenizer(tokenizerJson, tokenizerConfig, { isTag: () => true })
  const tokens = findWhisperTokens(tokenizer, tokenizerJson, files.generation)
  const decoder = await openWhisperDecoder(runtime, files.decoderFiles, session)
  return closeOnFailure(decoder, async () => {
    const rows = await rowsOf(files.decoderFiles)
    const encoder = await openWindowEncoder(files.mel, {
      runtime,
      gathers: rows.rowsMax !== 1,
      file: files.encoderFile,
      stateType: decoder.stateType,
      ...(await rowsOf([files.encoderFile])),
      ...(session && { session }),
    })
    const answers = createAnswerDecoder(decoder, rows)
    const rules = rulesOf(files, tokens)
    const parts: Parts = { files, tokenizer, tokens, rules, encoder, answers }
    return {
      windowSamples: files.mel.chunkSamples,
      modelFiles: [files.encoderFile, ...files.decoderFiles],
      check: (request) => checkSpeechTask(tokens, request),
      transcribe: (clip, request, tools) => transcribe(parts, clip, request, tools),
      async close() {
        await Promise.all([encoder.close(), decoder.close()])
      },
    }
  })
}

/**
 * Dynamic quantization uses one scale for a whole batch, so one clip would change another's text.
 */
async function rowsOf(files: readonly string[]): Promise<{ readonly rowsMax?: number }> {
  const marks = await Promise.all(files.map(readOperators))
  return marks.some(({ hasDynamicQuantization }) => hasDynamicQuantization) ? { rowsMax: 1 } : {}
}

function rulesOf({ generation }: WhisperFiles, tokens: WhisperTokens): readonly TokenRule[] {
  return [
    suppress([...generation.suppressedTokens, ...tokens.neverAnswered]),
    suppressAtBegin(generation.suppressedAtBegin),
    ...(tokens.hasTimestamps ? timestampRules(tokens, generation.maxInitialTimestampIndex) : []),
  ]
}

async function transcribe(
  parts: Parts,
  clip: AsyncIterable<Float32Array>,
  request: SpeechRequest,
  { signal, onWindow }: SpeechTools,
): Promise<Omit<AudioResult, 'words'>> {
  checkSpeechTask(parts.tokens, request)
  const { chunkSamples } = parts.files.mel
  const reader = new SampleReader(clip)
  const segments: AudioSegment[] = []
  let previous: readonly number[] = promptTokens(parts, request.prompt)
  let language = request.language ?? (parts.tokens.languages.size === 0 ? 'en' : undefined)
  try {
    for (let seek = 0; ; ) {
      const samples = await reader.read(seek, chunkSamples)
      if (signal.aborted) throw new CancelledError()
      if (samples.length < SECONDS_MIN * SAMPLE_RATE) {
        if (seek === 0) throw tooShort()
        break
      }
      const window = await parts.encoder.encode(samples, signal)
      language ??= await detectLanguage(parts, window, signal)
      const read = await readWindow(parts, window, { ...request, language }, previous, signal)
      const cut = cutWindow(read.tokenIds, {
        ...timesOf(parts),
        windowSeconds: samples.length / SAMPLE_RATE,
      })
      const found = read.isSilence
        ? []
        : cut.segments.map((segment) => presentSegment(parts, segment, read, seek))
      for (const segment of found) segments.push(segment)
      if (!read.isSilence) previous = nextContext(previous, read, found)
      seek += read.isSilence ? samples.length : Math.round(cut.advanceSeconds * SAMPLE_RATE)
      onWindow?.(seek, Math.max(seek, reader.decodedSamples), joinText(found))
    }
    return {
      text: joinText(segments).trim(),
      language: language ?? 'en',
      durationSeconds: reader.decodedSamples / SAMPLE_RATE,
      segments,
    }
  } finally {
    await reader.close()
  }
}

/**
 * The previous text in the next window's prompt. Only clips with a prompt carry their text along,
 * so that the prompt reaches later windows; windows without one keep equal prompts and share
 * batches with other clips.
 */
function nextContext(
  previous: readonly number[],
  { temperature }: WindowAnswer,
  found: readonly AudioSegment[],
): readonly number[] {
  if (previous.length === 0 || temperature > TRUSTED_TEMPERATURE_MAX) return []
  return [...previous, ...found.flatMap(({ tokenIds }) => tokenIds)]
}

function joinText(segments: readonly AudioSegment[]): string {
  return segments.map(({ text }) => text).join('')
}

function timesOf({ files, tokens }: Parts) {
  return {
    firstTimestamp: tokens.firstTimestamp,
    secondsPerTimestamp: files.secondsPerTimestamp,
  }
}

/** One token after the start of the transcript: the language of the window. */
async function detectLanguage(
  { answers, tokens }: Parts,
  window: WindowStates,
  signal: AbortSignal,
): Promise<string> {
  const { tokenIds } = await answers.decode(
    {
      window,
      prompt: [tokens.startOfTranscript],
      rules: [allowOnly([...tokens.languages.values()])],
      temperature: 0,
      tokensMax: 1,
      endOfText: tokens.endOfText,
    },
    signal,
  )
  const code = [...tokens.languages].find(([, id]) => id === tokenIds[0])?.[0] ?? 'en'
  return code === 'jw' ? 'jv' : code
}

async function readWindow(
  parts: Parts,
  window: WindowStates,
  request: SpeechRequest & { readonly language: string },
  previous: readonly number[],
  signal: AbortSignal,
): Promise<WindowAnswer> {
  const { tokens, files, answers, rules } = parts
  const half = Math.floor(files.contextLength / 2)
  const context =
    previous.length === 0 || tokens.startOfPrevious === undefined
      ? []
      : [tokens.startOfPrevious, ...previous.slice(1 - half)]
  const start = startTokens(tokens, request.task, request.language)
  const readAfter = (context: readonly number[]): Promise<WindowAnswer> =>
    answerWindow(
      answers,
      {
        window,
        prompt: [...context, ...start],
        rules,
        temperature: request.temperature,
        tokensMax: Math.min(half, files.contextLength - context.length - start.length),
        endOfText: tokens.endOfText,
        probe:
          tokens.noSpeech === undefined
            ? undefined
            : { at: context.length, tokenId: tokens.noSpeech },
        textOf: (tokenIds) => textOf(parts, tokenIds),
      },
      signal,
    )
  const read = await readAfter(context)
  // Small models stop at once after text that is unlike their training data, which must not silence
  // speech.
  return read.isLost && context.length > 0 ? readAfter([]) : read
}

function promptTokens({ tokenizer }: Parts, prompt: string): readonly number[] {
  if (prompt.trim() === '') return []
  const { text, content } = contentOnly(` ${prompt.trim()}`)
  return tokenizer.encode(text, { addSpecialTokens: false, content })
}

/** Text tokens precede all special tokens in the vocabulary. */
function textOf({ tokenizer, tokens }: Parts, tokenIds: readonly number[]): string {
  const words = tokenIds.filter((id) => id < tokens.endOfText)
  return decodeTokens(tokenizer.pieces, words, { continuesText: true })
}

function presentSegment(
  parts: Parts,
  { start, end, tokenIds }: { start: number; end: number; tokenIds: readonly number[] },
  read: WindowAnswer,
  seek: number,
): AudioSegment {
  const offset = seek / SAMPLE_RATE
  return {
    seekFrames: Math.round(seek / parts.files.mel.hopSamples),
    start: roundToHundredths(offset + start),
    end: roundToHundredths(offset + end),
    text: textOf(parts, tokenIds),
    tokenIds,
    temperature: read.temperature,
    averageLogprob: read.averageLogprob,
    compressionRatio: read.compressionRatio,
    noSpeechProbability: read.probed,
  }
}

function tooShort() {
  return failure.invalidRequest(
    `Audio file is too short. Minimum audio length is ${SECONDS_MIN} seconds.`,
    { param: 'file', code: 'audio_too_short' },
  )
}
