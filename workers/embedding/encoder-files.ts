import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'

import type { PoolingMode } from './pooling.ts'

/** What the files of a folder in the sentence-transformers or plain hub layout say. */
export interface EncoderFiles {
  readonly modelFile: string
  readonly tokenizerJson: object
  readonly tokenizerConfig: Record<string, unknown>
  readonly contextLength: number
  readonly paddingId: number
  readonly pooling: PoolingMode
  readonly isNormalized: boolean
  /** Whether the model was trained so that its leading dimensions stand for themselves. */
  readonly isTruncatable: boolean
}

const CONTEXT_LENGTH_UNKNOWN = 512
const MODEL_NAMES = ['model_quantized', 'model_int8', 'model', 'model_fp16'].map(
  (name) => `${name}.onnx`,
)

// Rows of 1_Pooling/config.json; the first that is true decides.
const POOLING_FLAGS: readonly (readonly [string, PoolingMode])[] = [
  ['pooling_mode_cls_token', 'cls'],
  ['pooling_mode_max_tokens', 'max'],
  ['pooling_mode_lasttoken', 'lastToken'],
  ['pooling_mode_weightedmean_tokens', 'weightedMean'],
  ['pooling_mode_mean_sqrt_len_tokens', 'meanSqrtLength'],
  ['pooling_mode_mean_tokens', 'mean'],
]

/** Reads an encoder's folder. Throws when a file that it cannot do without is missing. */
export async function readEncoderFiles(folder: string, onnxFile?: string): Promise<EncoderFiles> {
  const config = await readJson(join(folder, 'config.json'))
  const tokenizerConfig = await readJson(join(folder, 'tokenizer_config.json'))
  const sentence = await findJson(join(folder, 'sentence_bert_config.json'))
  const modules = await findModules(folder)
  const pooling = await findJson(join(folder, poolingFolder(modules), 'config.json'))
  return {
    modelFile: await findModelFile(folder, onnxFile),
    tokenizerJson: await readJson(join(folder, 'tokenizer.json')),
    tokenizerConfig,
    contextLength: contextLengthOf(config, tokenizerConfig, sentence),
    paddingId: numberOr(config.pad_token_id, 0),
    pooling: poolingOf(pooling),
    // Without a list of modules the vectors are normalized: that is what users of bare exports expect.
    isNormalized: modules === undefined || modules.some((type) => type.endsWith('Normalize')),
    isTruncatable:
      Array.isArray(config.matryoshka_dimensions) || sentence.truncate_dim !== undefined,
  }
}

async function findModelFile(folder: string, onnxFile: string | undefined): Promise<string> {
  const wanted = onnxFile === undefined ? MODEL_NAMES : [onnxFile, `${onnxFile}.onnx`]
  for (const place of [join(folder, 'onnx'), folder]) {
    const present = new Set(await readdir(place).catch(() => []))
    const found = wanted.find((name) => present.has(name))
    if (found !== undefined) return join(place, found)
  }
  throw new Error(`${folder}: there is no ${wanted.join(', ')} in onnx/`)
}

async function findModules(folder: string): Promise<readonly string[] | undefined> {
  const modules: unknown = await readJson(join(folder, 'modules.json')).catch(() => undefined)
  if (!Array.isArray(modules)) return undefined
  return modules.map((entry: { type?: unknown }) => String(entry.type))
}

function poolingFolder(modules: readonly string[] | undefined): string {
  const index = modules?.findIndex((type) => type.endsWith('Pooling')) ?? 1
  return `${index === -1 ? 1 : index}_Pooling`
}

function poolingOf(config: Record<string, unknown>): PoolingMode {
  return POOLING_FLAGS.find(([flag]) => config[flag] === true)?.[1] ?? 'mean'
}

/** The shortest of what the files state; some tokenizers say 10³⁰ where they know no limit. */
function contextLengthOf(...files: readonly Record<string, unknown>[]): number {
  const keys = ['max_seq_length', 'model_max_length', 'max_position_embeddings', 'n_positions']
  const limits = files
    .flatMap((file) => keys.map((key) => file[key]))
    .filter((value): value is number => typeof value === 'number' && value > 0 && value < 1e6)
  return limits.length === 0 ? CONTEXT_LENGTH_UNKNOWN : Math.min(...limits)
}

async function readJson(file: string): Promise<Record<string, unknown>> {
  return JSON.parse(await readFile(file, 'utf8'))
}

async function findJson(file: string): Promise<Record<string, unknown>> {
  return readJson(file).catch(() => ({}))
}

function numberOr(value: unknown, fallback: number): number {
  return typeof value === 'number' ? value : fallback
}
