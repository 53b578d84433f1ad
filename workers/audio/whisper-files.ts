import type { EncoderDecoderFiles } from '#workers/models/encoder-decoder-files.ts'
import { countIn, findJson, readJson } from '#workers/models/folder-json.ts'
import { readTokenizer, type TokenizerFiles } from '#workers/text/tokenizer-files/read-tokenizer.ts'

import type { MelConfig } from './mel.ts'
import { findSpeechGraphs } from './speech-files.ts'

/** The content of a Whisper folder in the hub layout. */
export interface WhisperFiles extends EncoderDecoderFiles {
  readonly tokenizer: TokenizerFiles
  readonly mel: MelConfig
  /** Positions of the decoder, shared by prompt and answer. */
  readonly contextLength: number
  /** Seconds between two timestamps: the window divided by the encoder's positions. */
  readonly secondsPerTimestamp: number
  readonly generation: WhisperGeneration
  readonly alignment: WhisperAlignment
}

/** The folder's settings for timing words; checked when words are timed. */
interface WhisperAlignment {
  /** `alignment_heads` as in the file; undefined if it has none. */
  readonly listed: unknown
  readonly layers: number
  readonly headsPerLayer: number
  readonly medianWidth: number
}

/** `generation_config.json`, merged with the fields that older exports keep in `config.json`. */
export interface WhisperGeneration {
  readonly isMultilingual: boolean
  /** The decoder's vocabulary size; the tokenizers of some exports do not list the timestamps. */
  readonly vocabularySize: number
  readonly suppressedTokens: readonly number[]
  /** Forbidden as the first token of an answer. */
  readonly suppressedAtBegin: readonly number[]
  readonly maxInitialTimestampIndex: number
}

type Json = Record<string, unknown>

// One second at 50 timestamps per second, as in the original code.
const MAX_INITIAL_TIMESTAMP_INDEX = 50
// Multilingual vocabularies are one token longer than the English one of 51,864.
const MULTILINGUAL_VOCABULARY = 51_865

// In positions: 0.14 s at 50 positions per second.
const MEDIAN_WIDTH = 7
const MEDIAN_WIDTH_MAX = 31

/** Reads a Whisper folder. Throws `ModelLoadError` when a file that it needs is missing. */
export async function readWhisperFiles(folder: string, onnxFile?: string): Promise<WhisperFiles> {
  const config = await readJson(folder, 'config.json')
  const generation = (await findJson(folder, 'generation_config.json')) ?? {}
  const mel = melConfigOf(folder, await readFeatures(folder, config))
  const count = (name: string, fallback: number): number =>
    countIn(folder, config, name, { fallback, max: POSITIONS_MAX })
  const positions = count('max_source_positions', 1500)
  return {
    ...(await findSpeechGraphs(folder, onnxFile)),
    tokenizer: await readTokenizer(folder),
    mel,
    contextLength: count('max_target_positions', 448),
    secondsPerTimestamp: mel.chunkSamples / mel.sampleRate / positions,
    generation: generationOf(generation, config),
    alignment: {
      listed: generation.alignment_heads ?? undefined,
      layers: count('decoder_layers', 1),
      headsPerLayer: count('decoder_attention_heads', 1),
      medianWidth: countIn(folder, config, 'median_filter_width', {
        fallback: MEDIAN_WIDTH,
        max: MEDIAN_WIDTH_MAX,
      }),
    },
  }
}

/** Newer exports store the feature settings in the file of the whole processor; some have none. */
async function readFeatures(folder: string, config: Json): Promise<Json> {
  const { feature_extractor: part } = (await findJson(folder, 'processor_config.json')) ?? {}
  const whole = await findJson(folder, 'preprocessor_config.json')
  return whole ?? (part as Json | undefined) ?? { feature_size: config.num_mel_bins }
}

/** Larger than those of any published model, and small enough for the matrices made of them. */
const POSITIONS_MAX = 65_536
const SAMPLES_MAX = 10_000_000

function melConfigOf(folder: string, raw: Json): MelConfig {
  const count = (name: string, fallback: number, max: number, min = 1): number =>
    countIn(folder, raw, name, { fallback, min, max })
  const sampleRate = count('sampling_rate', 16_000, 192_000)
  const hopSamples = count('hop_length', 160, 16_000)
  const frames = count('nb_max_frames', 0, POSITIONS_MAX, 0)
  const seconds = count('chunk_length', 30, 120)
  const usual = frames > 0 ? frames * hopSamples : seconds * sampleRate
  return {
    sampleRate,
    hopSamples,
    windowSamples: count('n_fft', 400, 4096, 2),
    melBins: count('feature_size', 80, 1024),
    chunkSamples: count('n_samples', Math.min(usual, SAMPLES_MAX), SAMPLES_MAX),
  }
}

function generationOf(generation: Json, config: Json): WhisperGeneration {
  const tokens = (name: string) => {
    const list = generation[name] ?? config[name]
    return Array.isArray(list) ? list.filter((id): id is number => Number(id) >= 0) : []
  }
  const isMultilingual =
    typeof generation.is_multilingual === 'boolean'
      ? generation.is_multilingual
      : generation.lang_to_id !== undefined ||
        numberOr(config.vocab_size, 0) >= MULTILINGUAL_VOCABULARY
  return {
    isMultilingual,
    vocabularySize: numberOr(config.vocab_size, Infinity),
    suppressedTokens: tokens('suppress_tokens'),
    suppressedAtBegin: tokens('begin_suppress_tokens'),
    maxInitialTimestampIndex: numberOr(
      generation.max_initial_timestamp_index,
      MAX_INITIAL_TIMESTAMP_INDEX,
    ),
  }
}

function numberOr(value: unknown, fallback: number): number {
  return typeof value === 'number' ? value : fallback
}
