import { readdir } from 'node:fs/promises'
import { basename, dirname } from 'node:path'

import { isRecord } from '#shared/json.ts'
import { WEIGHT_SUFFIXES } from '#workers/models/choose-files.ts'
import { findJson } from '#workers/models/folder-json.ts'
import { graphInside } from '#workers/models/inside-folder.ts'
import { findNamedGraph, listGraphs, namesOfOthers } from '#workers/models/named-graph.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

/**
 * Files of a decoder in a folder of the Hugging Face layout, best first for processors.
 * transformers 5 writes `decode` beside `prefill`, and older versions of optimum write
 * `decoder_model` beside `decoder_with_past_model`; `prefill` and `decoder_model` compute whole
 * texts.
 */
const FILE_NAMES = ['model', 'decoder_model_merged', 'decode', 'decoder_model'].flatMap((name) =>
  WEIGHT_SUFFIXES.text.map((suffix) => `${name}${suffix}.onnx`),
)

/** On a GPU half precision is the natural one, and 8-bit kernels are slow. */
const SUFFIX_OF_GPU = /(_fp16|_q4f16)\.onnx$/

/**
 * The decoder's file: the given one, or the best one in `onnx/` or in the folder itself. Throws
 * `ModelLoadError` naming the expected files.
 */
export async function findDecoderFile(
  folder: string,
  options: {
    readonly onnxFile?: string | undefined
    readonly executionProvider?: 'cpu' | 'cuda' | undefined
  } = {},
): Promise<string> {
  const { onnxFile, executionProvider } = options
  const present = await listGraphs(folder)
  const usual = rankNames(executionProvider).flatMap((name) => [`onnx/${name}`, name])
  const found =
    onnxFile === undefined
      ? usual.find((path) => present.includes(path))
      : await findNamedGraph(folder, onnxFile)
  if (found !== undefined) return graphInside(folder, found)
  // Some exporters name the file after the model.
  const [only, ...others] = present
  if (onnxFile === undefined && only !== undefined && others.length === 0) {
    return graphInside(folder, only)
  }
  const wanted = onnxFile ?? 'model.onnx or decoder_model_merged.onnx'
  throw new ModelLoadError(
    folder,
    `there is no ${wanted} in onnx/ or beside it, ${namesOfOthers(present)}`,
  )
}

/**
 * A graph beside the decoder, such as `embed_tokens`: with the same kind of weights, or the best
 * one. Throws `ModelLoadError` when there is none.
 */
export async function findCompanion(decoderFile: string, stem: string): Promise<string> {
  const folder = dirname(decoderFile)
  const own = /^[a-z_]*?((_(?:quantized|int8|uint8|q4|q4f16|bnb4|fp16))?\.onnx)$/.exec(
    basename(decoderFile),
  )?.[1]
  const present = await listFiles(folder)
  const names = [own, ...WEIGHT_SUFFIXES.precise.map((suffix) => `${suffix}.onnx`)]
    .filter((ending) => ending !== undefined)
    .map((ending) => `${stem}${ending}`)
  const name = names.find((candidate) => present.includes(candidate))
  if (name !== undefined) return graphInside(folder, name)
  throw new ModelLoadError(decoderFile, `there is no ${stem}.onnx beside it`)
}

/** The settings of config.json that the graph does not contain. */
export interface DecoderConfig {
  /** The context length that the model was made for; undefined if the file states none. */
  readonly contextLength: number | undefined
  /** The length for which the first of two sets of rotary factors applies (LongRoPE). */
  readonly shortTextMax: number | undefined
  /** How many positions attention reaches back in some layers. */
  readonly slidingWindow: number | undefined
  /** Query heads in each layer; undefined if the file states none. */
  readonly numHeads: number | undefined
  /** Elements of a head's keys and values; undefined if the files state none. */
  readonly headDim: number | undefined
  readonly vocabSize: number | undefined
  readonly isEncoderDecoder: boolean
}

/** Names of the setting across model families, nested under `text_config` in some. */
const CONTEXT_KEYS = [
  'max_position_embeddings',
  'n_positions',
  'n_ctx',
  'seq_length',
  'max_seq_len',
  'max_sequence_length',
]

const HEAD_KEYS = ['num_attention_heads', 'n_head', 'num_heads', 'n_heads']

/**
 * Reads config.json, or genai_config.json if an exporter wrote only that. Throws `ModelLoadError`
 * when both are missing.
 */
export async function readDecoderConfig(folder: string): Promise<DecoderConfig> {
  const config = (await findJson(folder, 'config.json')) ?? {}
  const { model: genai } = (await findJson(folder, 'genai_config.json')) ?? {}
  if (Object.keys(config).length === 0 && !isRecord(genai)) {
    throw new ModelLoadError(
      folder,
      'config.json is missing; folders of other formats, such as GGUF, are not supported',
    )
  }
  const decoder = isRecord(genai) && isRecord(genai.decoder) ? genai.decoder : {}
  const places = [config, config.text_config].filter(isRecord)
  const find = (keys: readonly string[], last?: unknown): number | undefined =>
    [...places.flatMap((place) => keys.map((key) => place[key])), last].find(
      (value): value is number => Number.isInteger(value) && (value as number) > 0,
    )
  return {
    contextLength: find(CONTEXT_KEYS, isRecord(genai) ? genai.context_length : undefined),
    slidingWindow: find(['sliding_window']),
    numHeads: find(HEAD_KEYS),
    headDim: find(['head_dim'], decoder.head_size),
    vocabSize: find(['vocab_size']),
    isEncoderDecoder: config.is_encoder_decoder === true,
    shortTextMax: places.map(shortTextMaxOf).find((max) => max !== undefined),
  }
}

/**
 * Models of this kind scale their rotary factors in one way up to a length and in another beyond.
 */
function shortTextMaxOf(config: Record<string, unknown>): number | undefined {
  const scaling = [config.rope_scaling, config.rope_parameters].find(isRecord)
  if (scaling === undefined || !Array.isArray(scaling.long_factor)) return undefined
  const max = config.original_max_position_embeddings ?? scaling.original_max_position_embeddings
  return Number.isInteger(max) && (max as number) > 0 ? (max as number) : undefined
}

function rankNames(executionProvider: 'cpu' | 'cuda' | undefined): string[] {
  if (executionProvider !== 'cuda') return FILE_NAMES
  const isFirst = (name: string): number => (SUFFIX_OF_GPU.test(name) ? 0 : 1)
  return FILE_NAMES.toSorted((a, b) => isFirst(a) - isFirst(b))
}

async function listFiles(folder: string): Promise<string[]> {
  try {
    return await readdir(folder)
  } catch {
    // A missing folder contains no files; missing files are reported by name.
    return []
  }
}
