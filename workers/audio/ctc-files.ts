import { isRecord } from '#shared/json.ts'
import { findModelFile } from '#workers/models/find-model-file.ts'
import { findJson, readJson, readVocabulary } from '#workers/models/folder-json.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

import type { CtcTokens } from './ctc-words.ts'
import { SAMPLE_RATE } from './decode.ts'
import { readWaveFeatures } from './speech-files.ts'

/** The content of the folder of a CTC model in the hub layout. */
export interface CtcFiles {
  readonly modelFile: string
  /** Whether samples are shifted and scaled to mean 0 and variance 1. */
  readonly isNormalized: boolean
  /** The convolutions that turn samples into frames. */
  readonly convolutions: readonly Convolution[]
  /** Whether padding of a shorter recording affects only its own frames. */
  readonly ignoresPadding: boolean
  readonly tokens: CtcTokens
}

interface Convolution {
  readonly kernel: number
  readonly stride: number
}

type Json = Record<string, unknown>

const CONVOLUTIONS_MAX = 32
const KERNEL_MAX = 4096
const SAMPLES_PER_FRAME_MAX = SAMPLE_RATE

/** Types whose only convolution over padded features begins with zeros in their place. */
const MASKS_PADDING: ReadonlySet<unknown> = new Set([
  'wav2vec2',
  'hubert',
  'wavlm',
  'unispeech',
  'unispeech-sat',
])

/** Reads the folder. Throws `ModelLoadError`. */
export async function readCtcFiles(folder: string, onnxFile?: string): Promise<CtcFiles> {
  const config = await readJson(folder, 'config.json')
  if (config.add_adapter === true) {
    throw new ModelLoadError(folder, 'add_adapter is not supported')
  }
  return {
    modelFile: await findModelFile(folder, onnxFile),
    ...(await readWaveFeatures(folder)),
    convolutions: convolutionsOf(folder, config),
    // A norm over time would include the padding, and so do the convolutions of other types.
    ignoresPadding: MASKS_PADDING.has(config.model_type) && config.feat_extract_norm === 'layer',
    tokens: await readTokens(folder, config),
  }
}

function convolutionsOf(folder: string, config: Json): readonly Convolution[] {
  const kernels = countsIn(folder, config, 'conv_kernel')
  const strides = countsIn(folder, config, 'conv_stride')
  if (kernels.length !== strides.length) {
    throw new ModelLoadError(folder, 'conv_kernel and conv_stride differ in their length')
  }
  if (strides.reduce((product, stride) => product * stride, 1) > SAMPLES_PER_FRAME_MAX) {
    throw new ModelLoadError(folder, 'conv_stride makes frames of more than a second')
  }
  return kernels.map((kernel, index) => ({ kernel, stride: strides[index] as number }))
}

function countsIn(folder: string, config: Json, name: string): readonly number[] {
  const list = config[name]
  const isCount = (value: unknown) => Number.isInteger(value) && Number(value) >= 1
  const isBounded = (value: unknown) => isCount(value) && Number(value) <= KERNEL_MAX
  if (Array.isArray(list) && list.length <= CONVOLUTIONS_MAX && list.every(isBounded)) {
    return list as readonly number[]
  }
  throw new ModelLoadError(folder, `${name} is not a list of whole numbers from 1 to ${KERNEL_MAX}`)
}

/** The tokens, as `Wav2Vec2CTCTokenizer` of transformers reads them. */
async function readTokens(folder: string, config: Json): Promise<CtcTokens> {
  const settings = (await findJson(folder, 'tokenizer_config.json')) ?? {}
  const vocabulary = await readVocabulary(folder, textOf(settings.target_lang))
  const idOf = (setting: string, ...usual: readonly string[]) =>
    [textOf(settings[setting]), ...usual]
      .map((text) => (text === undefined ? undefined : vocabulary.get(text)))
      .find((id) => id !== undefined)
  const blank = idOf('pad_token', '<pad>', '[PAD]') ?? numberOf(config.pad_token_id)
  if (blank === undefined) {
    throw new ModelLoadError(folder, 'the vocabulary has no pad_token, which is the blank of CTC')
  }
  const skipped = [
    idOf('bos_token', '<s>'),
    idOf('eos_token', '</s>'),
    idOf('unk_token', '<unk>', '[UNK]'),
  ].filter((id) => id !== undefined && id !== blank)
  const show = (text: string) => (settings.do_lower_case === true ? text.toLowerCase() : text)
  return {
    blank,
    delimiter: idOf('word_delimiter_token', '|'),
    skipped: new Set(skipped as readonly number[]),
    texts: new Map([...vocabulary].map(([text, id]) => [id, show(text)] as const)),
  }
}

/** A token is a text, or an object with one. */
function textOf(token: unknown): string | undefined {
  const text = isRecord(token) ? token.content : token
  return typeof text === 'string' ? text : undefined
}

function numberOf(value: unknown): number | undefined {
  return Number.isInteger(value) && Number(value) >= 0 ? Number(value) : undefined
}
