import type { EncoderDecoderFiles } from '#workers/models/encoder-decoder-files.ts'
import { countIn, readJson } from '#workers/models/folder-json.ts'
import { readTokenizer, type TokenizerFiles } from '#workers/text/tokenizer-files/read-tokenizer.ts'

import { findSpeechGraphs, readWaveFeatures } from './speech-files.ts'

/** The content of the folder of a Moonshine model in the layout of optimum. */
export interface MoonshineFiles extends EncoderDecoderFiles {
  readonly tokenizer: TokenizerFiles
  /** Positions of the decoder. */
  readonly contextLength: number
  readonly startOfText: number
  readonly endOfText: number
  /** Whether samples are shifted and scaled to mean 0 and variance 1. */
  readonly isNormalized: boolean
}

const CONTEXT_MAX = 4096
const TOKENS_MAX = 1_000_000

/** Reads the folder. Throws `ModelLoadError`. */
export async function readMoonshineFiles(
  folder: string,
  onnxFile?: string,
): Promise<MoonshineFiles> {
  const config = await readJson(folder, 'config.json')
  const token = (name: string, fallback: number) =>
    countIn(folder, config, name, { fallback, min: 0, max: TOKENS_MAX })
  return {
    ...(await findSpeechGraphs(folder, onnxFile)),
    ...(await readWaveFeatures(folder)),
    tokenizer: await readTokenizer(folder),
    contextLength: countIn(folder, config, 'max_position_embeddings', {
      fallback: 194,
      max: CONTEXT_MAX,
    }),
    startOfText: token('decoder_start_token_id', 1),
    endOfText: token('eos_token_id', 2),
  }
}
