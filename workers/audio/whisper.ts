import type { AudioResult, AudioSegment, SpokenToken } from '#shared/contracts/audio.ts'
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
import { readWindows } from './read-windows.ts'
import type { Recognizer, SpeechRequest, SpeechTools } from './recognizer.ts'
import { spokenToken } from './recognizer.ts'
import { cutWindow, roundToHundredths } from './segments.ts'
import { openSpeechDecoder, type WindowStates } from './speech-decoder.ts'
import type { TokenRule } from './token-rules.ts'
import { allowOnly, suppress, suppressAtBegin, timestampRules } from './token-rules.ts'
import { readWhisperFiles, type WhisperFiles } from './whisper-files.ts'
import {
  checkSpeechTask,
  findLanguage,
  findWhisperTokens,
  startTokens,
  type WhisperTokens,
} from './whisper-tokens.ts'
import { answerWindow, type WindowAnswer } from './window-answer.ts'
import { openWindowEncoder, type WindowEncoder } from './window-encoder.ts'
import { openWordTimer, type WordTimer, wantedHeads } from './word-timer.ts'

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
  /** Absent if the decoder cannot time words. */
  readonly timer: WordTimer | undefined
}

// Above this temperature, the text of a window is not used as context of the next one.
const TRUSTED_TEMPERATURE_MAX = 0.5

/** Loads a Whisper model in the hub layout: any size, English-only or multilingual. */
export async function openWhisper(options: WhisperOptions): Promise<Recognizer> {
  const { runtime, folder, onnxFile, session } = options
  const files = await readWhisperFiles(folder, onnxFile)
  if (files.mel.sampleRate !== SAMPLE_RATE) {
    throw new ModelLoadError(folder, `${files.mel.sampleRate} samples a second are not supported`)
  }
  // Timestamps and languages count as markers, whether or not the file calls them special.
  const { json, config } = files.tokenizer
  const tokenizer = createTokenizer(json, config, { isTag: () => true })
  const tokens = findWhisperTokens(tokenizer, json, files.generation)
  const wanted = wantedHeads(files)
  const decoder = await openSpeechDecoder(runtime, files.decoderFiles, session, wanted)
  return closeOnFailure(decoder, async () => {
    const encoder = await openWindowEncoder(files.mel, {
      runtime,
      gathers: !decoder.isRowCoupled,
      file: files.encoderFile,
      stateType: decoder.stateType,
      isRowCoupled: (await readOperators(files.encoderFile)).hasDynamicQuantization,
      ...(session && { session }),
    })
    return closeOnFailure(encoder, async () => {
      const answers = createAnswerDecoder(decoder)
      const rules = rulesOf(files, tokens)
      const { timer, reason } = await openWordTimer({ runtime, decoder, files, tokenizer, tokens })
      const parts: Parts = { files, tokenizer, tokens, rules, encoder, answers, timer }
      return {
        windowSamples: files.mel.chunkSamples,
        modelFiles: [files.encoderFile, ...files.decoderFiles],
        ...(reason !== undefined && { noWordTimes: reason }),
        check: (request) => checkSpeechTask(tokens, request),
        ignoredFields: ({ wordTimestamps }) =>
          wordTimestamps && timer === undefined ? ['timestamp_granularities[]'] : [],
        transcribe: (clip, request, tools) => transcribe(parts, clip, request, tools),
        async close() {
          await Promise.all([encoder.close(), decoder.close(), timer?.close()])
        },
      }
    })
  })
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
  tools: SpeechTools,
): Promise<AudioResult> {
  checkSpeechTask(parts.tokens, request)
  const { signal } = tools
  let previous: readonly number[] = promptTokens(parts, request.prompt)
  const timer = request.wordTimestamps ? parts.timer?.begin() : undefined
  let language = request.language ?? (parts.tokens.languages.size === 0 ? 'en' : undefined)
  const read = await readWindows(clip, {
    ...tools,
    windowSamples: parts.files.mel.chunkSamples,
    async recognize(samples, seek) {
      const window = await parts.encoder.encode(samples, signal)
      language ??= await detectLanguage(parts, window, { among: request.among, signal })
      const answer = await readWindow(parts, window, { ...request, language }, previous, signal)
      const windowSeconds = samples.length / SAMPLE_RATE
      const cut = cutWindow(answer.tokenIds, { ...timesOf(parts), windowSeconds })
      const kept = answer.isSilence ? [] : cut.segments
      const segments = kept.map((segment) => presentSegment(parts, segment, answer, seek))
      if (!answer.isSilence) previous = nextContext(previous, answer, segments)
      const spoken = { window, samples: samples.length, seek, language, task: request.task }
      return {
        segments,
        ...(timer !== undefined && { words: await timer.time(segments, spoken) }),
        ...(request.logprobs === true && {
          logprobs: kept.flatMap((segment) => presentTokens(parts, segment, answer)),
        }),
        advance: answer.isSilence ? samples.length : Math.round(cut.advanceSeconds * SAMPLE_RATE),
      }
    },
  })
  return { ...read, language: language ?? 'en' }
}

/**
 * The text context of the next window's prompt. Only clips with a prompt keep their text, so that
 * the prompt reaches later windows; windows without a prompt stay equal and share batches with
 * other clips.
 */
function nextContext(
  previous: readonly number[],
  { temperature }: WindowAnswer,
  found: readonly AudioSegment[],
): readonly number[] {
  if (previous.length === 0 || temperature > TRUSTED_TEMPERATURE_MAX) return []
  return [...previous, ...found.flatMap(({ tokenIds }) => tokenIds)]
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
  { among = [], signal }: { readonly among: readonly string[] | undefined; signal: AbortSignal },
): Promise<string> {
  const wanted = among.map((code) => findLanguage(tokens, code)).filter((id) => id !== undefined)
  const { tokenIds } = await answers.decode(
    {
      window,
      prompt: [tokens.startOfTranscript],
      rules: [allowOnly(wanted.length > 0 ? wanted : [...tokens.languages.values()])],
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
  // After text that differs from their training data, small models stop at once, which must not
  // hide speech.
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

/** The tokens of the text of a segment, without timestamps. */
function presentTokens(
  { tokenizer, tokens }: Parts,
  { tokenIds, from }: { readonly tokenIds: readonly number[]; readonly from: number },
  { logprobs }: WindowAnswer,
): SpokenToken[] {
  return tokenIds.flatMap((id, index) => {
    if (id >= tokens.endOfText) return []
    return [spokenToken(tokenizer.pieces, id, logprobs[from + index] as number)]
  })
}
