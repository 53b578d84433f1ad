import type { AudioSegment, AudioWord } from '#shared/contracts/audio.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'
import type { ElementType } from '#workers/tensor/element-type.ts'
import type { Tokenizer } from '#workers/text/tokenizer.ts'

import { type Aligner, openAligner } from './aligner.ts'
import { findAlignmentHeads } from './alignment-heads.ts'
import { SAMPLE_RATE } from './decode.ts'
import type { WantedHeads } from './expose-attentions.ts'
import type { SpeechTask } from './recognizer.ts'
import type { SpeechDecoder, WindowStates } from './speech-decoder.ts'
import type { WhisperFiles } from './whisper-files.ts'
import { startTokens, type WhisperTokens } from './whisper-tokens.ts'
import { presentWords } from './word-times.ts'
import { splitWords } from './words.ts'

/** Times the words of clips with the decoder's cross-attentions. */
export interface WordTimer {
  /** Begins a clip. */
  begin(): ClipTimer
  close(): Promise<void>
}

/** Times the words of one clip, window by window. */
interface ClipTimer {
  /** The words of the segments of one window. */
  time(segments: readonly AudioSegment[], spoken: SpokenWindow): Promise<readonly AudioWord[]>
}

/** A window that has been recognized. */
interface SpokenWindow {
  readonly window: WindowStates
  /** Samples of sound in it. */
  readonly samples: number
  /** Its first sample in the clip. */
  readonly seek: number
  readonly task: SpeechTask['task']
  readonly language: string
}

/** The parts of a model that time words. */
interface TimerParts {
  readonly runtime: Runtime
  readonly decoder: SpeechDecoder
  readonly files: WhisperFiles
  readonly tokenizer: Tokenizer
  readonly tokens: WhisperTokens
}

/** The heads that would time the words of a model; undefined if its files name none. */
export function wantedHeads(files: WhisperFiles): WantedHeads | undefined {
  const { layers, headsPerLayer } = files.alignment
  const found = findAlignmentHeads(files, new Set(Array(layers).keys()))
  return 'heads' in found ? { heads: found.heads, headsPerLayer } : undefined
}

/** Opens the timer of a model, or returns the reason why its words have no times. */
export async function openWordTimer(
  parts: TimerParts,
): Promise<
  | { readonly timer: WordTimer; readonly reason?: undefined }
  | { readonly timer?: undefined; readonly reason: string }
> {
  const { runtime, decoder, files } = parts
  const found = findAlignmentHeads(files, new Set(decoder.attentionTypes.keys()))
  if ('reason' in found) return { reason: found.reason }
  const types = found.heads.map(({ layer }) => decoder.attentionTypes.get(layer) as ElementType)
  const type = types[0] as ElementType
  if (types.some((other) => other !== type)) {
    return { reason: 'the cross-attentions of the decoder differ in their precision' }
  }
  const { medianWidth } = files.alignment
  const heads = found.heads.map((one) => ({ ...one, head: decoder.indexOf(one) }))
  const aligner = await openAligner(runtime, { heads, medianWidth, type })
  return {
    timer: {
      begin: () => beginClip(parts, aligner),
      close: () => aligner.close(),
    },
  }
}

function beginClip(parts: TimerParts, aligner: Aligner): ClipTimer {
  let lastEnd = 0
  return {
    async time(segments, spoken) {
      const texts = segments.map(({ tokenIds }) =>
        tokenIds.filter((id) => id < parts.tokens.endOfText),
      )
      if (texts.every((text) => text.length === 0)) return []
      const timed = await timeWords(parts, aligner, texts.flat(), spoken)
      const fitted = presentWords(
        timed,
        segments.map(({ start, end }, index) => {
          return { start, end, textTokens: texts[index]?.length ?? 0 }
        }),
        lastEnd,
      )
      lastEnd = fitted.lastEnd
      return fitted.words
    },
  }
}

/**
 * Runs the decoder once more over the whole text of a window. A token is spoken where the decoder
 * attends when it predicts the token, which is when it reads the one before: the first text token
 * belongs to the last one of the prompt, and the end of the text ends the last word.
 */
async function timeWords(
  { decoder, files, tokenizer, tokens }: TimerParts,
  aligner: Aligner,
  text: readonly number[],
  { window, samples, seek, task, language }: SpokenWindow,
) {
  const { chunkSamples } = files.mel
  const start = startTokens({ ...tokens, hasTimestamps: false }, task, language)
  const row = [...start, ...text, tokens.endOfText]
  const samplesPerPosition = chunkSamples / window.positions
  const positions = Math.max(1, Math.floor(samples / samplesPerPosition))
  const attentions = await decoder.attend(row, window, aligner.layers)
  try {
    checkShapes(attentions, { row, positions: window.positions })
    const range = { from: start.length - 1, to: row.length - 1, positions }
    const begins = await aligner.align(attentions, range)
    const secondsAt = (token: number): number =>
      seek / SAMPLE_RATE + ((begins[token] ?? 0) * samplesPerPosition) / SAMPLE_RATE
    const words = splitWords(tokenizer.pieces, text, task === 'translate' ? 'en' : language)
    let token = 0
    return words.map((word) => {
      const from = token
      token += word.tokenIds.length
      return { ...word, start: secondsAt(from), end: secondsAt(token) }
    })
  } finally {
    for (const tensor of attentions.values()) tensor.dispose()
  }
}

/** The declared shapes contain symbols; only a run shows the actual shapes. */
function checkShapes(
  attentions: ReadonlyMap<number, Tensor>,
  { row, positions }: { readonly row: readonly number[]; readonly positions: number },
): void {
  for (const [layer, { dims }] of attentions) {
    if (dims[0] === 1 && dims[2] === row.length && dims[3] === positions) continue
    throw new Error(
      `cross_attentions.${layer} is [${dims.join(', ')}], expected [1, heads, ${row.length}, ${positions}]`,
    )
  }
}
