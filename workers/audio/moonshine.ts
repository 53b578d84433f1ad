import type { AudioResult, AudioSegment } from '#shared/contracts/audio.ts'
import { readOperators } from '#workers/graph/operators.ts'
import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'
import { decodeTokens } from '#workers/text/detokenizer.ts'
import { createTokenizer, type Tokenizer } from '#workers/text/tokenizer.ts'

import { type Answer, type AnswerDecoder, createAnswerDecoder } from './answer-decoder.ts'
import { SAMPLE_RATE } from './decode.ts'
import { type MoonshineFiles, readMoonshineFiles } from './moonshine-files.ts'
import { findQuietCut } from './quiet-cut.ts'
import { readWindows } from './read-windows.ts'
import type { SpeechRequest, SpeechTools } from './recognizer.ts'
import { checkTranscription, type Recognizer, spokenToken } from './recognizer.ts'
import { roundToHundredths, seekFramesOf } from './segments.ts'
import { openSpeechDecoder, statesOfRows, type WindowStates } from './speech-decoder.ts'
import { normalizeWave, openWaveModel, type WaveModel } from './wave-model.ts'
import { compressionRatioOf } from './window-answer.ts'

/** Options of a Moonshine model. */
interface MoonshineOptions {
  readonly runtime: Runtime
  readonly folder: string
  readonly onnxFile?: string
  readonly session?: SessionOptions
  readonly windowSeconds?: number
}

interface Parts {
  readonly files: MoonshineFiles
  readonly tokenizer: Tokenizer
  readonly encoder: WaveModel<WindowStates>
  readonly answers: AnswerDecoder
  readonly windowSamples: number
}

// Speech has no more (Jeffries et al. 2024): a longer answer repeats itself.
const TOKENS_PER_SECOND = 6.5
// The length of the recordings that the model was trained on.
const WINDOW_SECONDS_MAX = 30

/** Loads a Moonshine model in the layout of optimum. Throws `ModelLoadError`. */
export async function openMoonshine(options: MoonshineOptions): Promise<Recognizer> {
  const { runtime, folder, onnxFile, session } = options
  const files = await readMoonshineFiles(folder, onnxFile)
  const tokenizer = createTokenizer(files.tokenizer.json, files.tokenizer.config)
  const encoderMarks = await readOperators(files.encoderFile)
  const decoder = await openSpeechDecoder(runtime, files.decoderFiles, session)
  return closeOnFailure(decoder, async () => {
    const encoder = await openWaveModel<WindowStates>({
      runtime,
      file: files.encoderFile,
      output: 'last_hidden_state',
      // A norm over time includes the padding.
      pads: false,
      isRowCoupled: encoderMarks.hasDynamicQuantization,
      ...(session && { session }),
      openReader: async () => ({
        read: async (states) => statesOfRows(states, decoder.stateType),
        close: async () => {},
      }),
    })
    const seconds = Math.min(WINDOW_SECONDS_MAX, files.contextLength / TOKENS_PER_SECOND)
    const windowSamples = Math.floor((options.windowSeconds ?? seconds) * SAMPLE_RATE)
    const answers = createAnswerDecoder(decoder)
    const parts = { files, tokenizer, encoder, answers, windowSamples }
    return {
      windowSamples,
      modelFiles: [files.encoderFile, ...files.decoderFiles],
      noWordTimes: 'Moonshine has no timestamps',
      check: checkTranscription,
      ignoredFields,
      transcribe: (clip, request, tools) => transcribe(parts, clip, request, tools),
      async close() {
        await Promise.all([encoder.close(), decoder.close()])
      },
    }
  })
}

function ignoredFields({ prompt, language, wordTimestamps }: SpeechRequest): readonly string[] {
  return [
    ...(prompt.trim() === '' ? [] : ['prompt']),
    ...(language === null ? [] : ['language']),
    ...(wordTimestamps ? ['timestamp_granularities[]'] : []),
  ]
}

/** Without timestamps, a window ends at its quietest moment near the end, and is one segment. */
async function transcribe(
  parts: Parts,
  clip: AsyncIterable<Float32Array>,
  request: SpeechRequest,
  tools: SpeechTools,
): Promise<AudioResult> {
  checkTranscription(request)
  const { windowSamples, tokenizer, files } = parts
  const read = await readWindows(clip, {
    ...tools,
    windowSamples,
    async recognize(whole, seek) {
      const isLast = whole.length < windowSamples
      const samples = isLast ? whole : whole.slice(0, findQuietCut(whole))
      const answer = await answerTo(parts, samples, request, tools.signal)
      const text = decodeTokens(tokenizer.pieces, answer.tokenIds, { continuesText: true })
      const segment = { text, seek, samples: samples.length, temperature: request.temperature }
      const spoken = answer.tokenIds.flatMap((id, index) =>
        tokenizer.pieces.isSpecial(id) || id === files.endOfText
          ? []
          : [spokenToken(tokenizer.pieces, id, answer.logprobs[index] as number)],
      )
      return {
        segments: text.trim() === '' ? [] : [presentSegment(answer, segment)],
        ...(request.logprobs === true && { logprobs: text.trim() === '' ? [] : spoken }),
        advance: samples.length,
      }
    },
  })
  return { ...read, language: request.language }
}

async function answerTo(
  { files, encoder, answers }: Parts,
  samples: Float32Array,
  { temperature }: SpeechRequest,
  signal: AbortSignal,
): Promise<Answer> {
  const wave = files.isNormalized ? normalizeWave(samples) : samples
  const tokens = Math.floor((samples.length / SAMPLE_RATE) * TOKENS_PER_SECOND)
  return answers.decode(
    {
      window: await encoder.run(wave, signal),
      prompt: [files.startOfText],
      rules: [],
      temperature,
      tokensMax: Math.max(1, Math.min(tokens, files.contextLength - 1)),
      endOfText: files.endOfText,
    },
    signal,
  )
}

function presentSegment(
  { tokenIds, averageLogprob }: Answer,
  window: {
    readonly text: string
    readonly seek: number
    readonly samples: number
    readonly temperature: number
  },
): AudioSegment {
  const { text, seek, samples, temperature } = window
  return {
    seekFrames: seekFramesOf(seek),
    start: roundToHundredths(seek / SAMPLE_RATE),
    end: roundToHundredths((seek + samples) / SAMPLE_RATE),
    text,
    tokenIds,
    temperature,
    averageLogprob,
    compressionRatio: compressionRatioOf(text),
    noSpeechProbability: 0,
  }
}
