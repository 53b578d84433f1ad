import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { openAligner } from '#workers/audio/aligner.ts'
import { findAlignmentHeads } from '#workers/audio/alignment-heads.ts'
import { createAnswerDecoder } from '#workers/audio/answer-decoder.ts'
import { openLogMel } from '#workers/audio/mel.ts'
import { openSpeechDecoder } from '#workers/audio/speech-decoder.ts'
import { suppress, suppressAtBegin, timestampRules } from '#workers/audio/token-rules.ts'
import { openWhisperEncoder } from '#workers/audio/whisper-encoder.ts'
import { readWhisperFiles } from '#workers/audio/whisper-files.ts'
import { findWhisperTokens } from '#workers/audio/whisper-tokens.ts'
import { presentWords } from '#workers/audio/word-times.ts'
import { splitWords } from '#workers/audio/words.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { createTokenizer } from '#workers/text/tokenizer.ts'

// Recorded from transformers by test/fixtures/build-models.py.
interface Golden {
  readonly firstLogits: number[]
  readonly plain: { prompt: number[]; tokens: number[] }
  readonly timestamps: { prompt: number[]; tokens: number[] }
  readonly language: number
}

interface TimedText {
  readonly text: string
  readonly start: number
  readonly end: number
}

interface WordsGolden {
  readonly row: number[]
  readonly attentions: readonly { layer: number; head: number; first: number[] }[]
  readonly timed: {
    readonly frames: number
    readonly seekFrames: number
    readonly lastEnd: number
    readonly segments: readonly { start: number; end: number; tokens: number[] }[]
    readonly raw: readonly (TimedText & { tokens: number[] })[]
    readonly words: readonly TimedText[]
  }
  readonly splits: readonly { language: string; tokens: number[]; words: string[] }[]
}

const FIXTURES = join(import.meta.dirname, '../fixtures/models')
const FOREVER = new AbortController().signal
const WAV_HEADER_BYTES = 44
const runtime = openRuntime()

afterAll(() => runtime.close())

describe.each(['whisper', 'whisper-split'])('the %s export', async (name) => {
  const folder = join(FIXTURES, name)
  const golden: Golden = JSON.parse(readFileSync(join(folder, 'golden.json'), 'utf8'))
  const files = await readWhisperFiles(folder)
  const tokenizer = createTokenizer(files.tokenizer.json, files.tokenizer.config)
  const tokens = findWhisperTokens(tokenizer, files.tokenizer.json, files.generation)
  const decoder = await openSpeechDecoder(runtime, files.decoderFiles)
  const encoder = await openWhisperEncoder({
    runtime,
    file: files.encoderFile,
    stateType: decoder.stateType,
    melBins: files.mel.melBins,
    isRowCoupled: false,
  })
  const mel = await openLogMel(runtime, files.mel)
  const window = await encoder.encode(await mel.extract(readSamples(folder)), FOREVER)
  const answers = createAnswerDecoder(decoder)
  const common = [
    suppress(files.generation.suppressedTokens),
    suppressAtBegin(files.generation.suppressedAtBegin),
  ]
  const request = {
    window,
    rules: common,
    temperature: 0,
    tokensMax: 16,
    endOfText: tokens.endOfText,
  }

  it('gives the first logits of the reference', async () => {
    const run = await decoder.begin([[tokens.startOfTranscript]], [window])
    const logits = run.logits(0)
    run.dispose()
    for (const [id, expected] of golden.firstLogits.entries()) {
      expect(Math.abs(defined(logits[id]) - expected)).toBeLessThan(2e-3)
    }
  })

  it('decodes the tokens of the reference, with and without timestamps', async () => {
    const { plain, timestamps } = golden
    const stamped = [
      ...common,
      ...timestampRules(tokens, files.generation.maxInitialTimestampIndex),
    ]
    const [bare, timed, again] = await Promise.all([
      answers.decode({ ...request, prompt: plain.prompt }, FOREVER),
      answers.decode({ ...request, prompt: timestamps.prompt, rules: stamped }, FOREVER),
      answers.decode({ ...request, prompt: timestamps.prompt, rules: common }, FOREVER),
    ])
    expect(bare.tokenIds).toEqual(plain.tokens)
    expect(timed.tokenIds).toEqual(timestamps.tokens)
    expect(again.tokenIds).not.toEqual(timestamps.tokens)
  })

  it('returns the probability of a probed token at its position, 0 without a probe', async () => {
    const { prompt, tokens: expected } = golden.plain
    const tokenId = defined(expected[0])
    const at = prompt.length - 1
    const run = await decoder.begin([prompt], [window])
    const logits = run.logits(0, at)
    const sum = logits.reduce((total, logit) => total + Math.exp(logit), 0)
    const probability = Math.exp(defined(logits[tokenId])) / sum
    run.dispose()
    const probed = await answers.decode({ ...request, prompt, probe: { at, tokenId } }, FOREVER)
    expect(probability).toBeGreaterThan(0)
    expect(probed.probed).toBeCloseTo(probability, 4)
    expect((await answers.decode({ ...request, prompt }, FOREVER)).probed).toBe(0)
  })

  it('decodes windows side by side as it does alone', async () => {
    const silence = await encoder.encode(await mel.extract(new Float32Array(0)), FOREVER)
    const prompts = [golden.plain.prompt, golden.plain.prompt, golden.plain.prompt]
    const windows = [window, silence, window]
    const requests = prompts.map((prompt, index) => ({
      ...request,
      prompt,
      window: defined(windows[index]),
      // Rows that end early are dropped from the run while the others go on.
      tokensMax: defined([16, 2, 9][index]),
    }))
    const together = await Promise.all(requests.map((one) => answers.decode(one, FOREVER)))
    for (const [index, one] of requests.entries()) {
      const alone = await answers.decode(one, FOREVER)
      expect(defined(together[index]).tokenIds).toEqual(alone.tokenIds)
      expect(defined(together[index]).averageLogprob).toBeCloseTo(alone.averageLogprob, 4)
    }
  })
})

describe('the times of words', async () => {
  const folder = join(FIXTURES, 'whisper-words')
  const golden: WordsGolden = JSON.parse(readFileSync(join(folder, 'golden.json'), 'utf8'))
  const { row, timed, splits } = golden
  const files = await readWhisperFiles(folder)
  const tokenizer = createTokenizer(files.tokenizer.json, files.tokenizer.config)
  const decoder = await openSpeechDecoder(runtime, files.decoderFiles)
  const { melBins } = files.mel
  const { stateType } = decoder
  const encoder = await openWhisperEncoder({
    runtime,
    file: files.encoderFile,
    stateType,
    melBins,
    isRowCoupled: false,
  })
  const mel = await openLogMel(runtime, files.mel)
  const window = await encoder.encode(await mel.extract(readSamples(folder)), FOREVER)
  const found = findAlignmentHeads(files, new Set(decoder.attentionTypes.keys()))
  if ('reason' in found) throw new Error(found.reason)
  const { heads } = found
  const aligner = await openAligner(runtime, { heads, medianWidth: 7, type: 'float32' })

  it('come from the cross-attentions of the reference', async () => {
    const attentions = await decoder.attend(row, window, aligner.layers)
    for (const { layer, head, first } of golden.attentions) {
      const { data, dims } = defined(attentions.get(layer))
      const start = (head * row.length + 1) * defined(dims[3])
      for (const [at, expected] of first.entries()) {
        expect(Math.abs((data[start + at] as number) - expected)).toBeLessThan(1e-4)
      }
    }
  })

  it('are those of the reference', async () => {
    const text = timed.segments.flatMap(({ tokens }) => tokens)
    const all = [...row.slice(0, 4), ...text, defined(row.at(-1))]
    const attentions = await decoder.attend(all, window, aligner.layers)
    const positions = timed.frames / 2
    const begins = await aligner.align(attentions, { from: 3, to: all.length - 1, positions })
    let token = 0
    const words = splitWords(tokenizer.pieces, text, 'en').map((word) => {
      const from = token
      token += word.tokenIds.length
      return { ...word, start: defined(begins[from]) / 50, end: defined(begins[token]) / 50 }
    })
    expect(words.map((word) => ({ ...word, tokens: word.tokenIds }))).toMatchObject(timed.raw)
    const offset = timed.seekFrames / 100
    const presented = presentWords(
      words.map((word) => ({ ...word, start: word.start + offset, end: word.end + offset })),
      timed.segments.map((segment) => ({ ...segment, textTokens: segment.tokens.length })),
      timed.lastEnd,
    )
    // Ours have no punctuation around them, as OpenAI's API answers.
    const bare = timed.words.map(({ text, ...times }) => {
      return { word: text.replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, ''), ...times }
    })
    expect(presented.words).toEqual(bare.filter(({ word }) => word !== ''))
  })

  it.each(splits)(
    'split the words of $language as the reference does',
    ({ language, ...split }) => {
      const words = splitWords(tokenizer.pieces, split.tokens, language)
      expect(words.map(({ text }) => text)).toEqual(split.words)
      expect(words.flatMap(({ tokenIds }) => tokenIds)).toEqual(split.tokens)
    },
  )
})

function readSamples(folder: string): Float32Array {
  const wav = readFileSync(join(folder, 'golden.wav')).subarray(WAV_HEADER_BYTES)
  return Float32Array.from({ length: wav.length / 2 }, (_, i) => wav.readInt16LE(2 * i) / 32768)
}
