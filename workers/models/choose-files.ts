import { basename, dirname, join, relative } from 'node:path/posix'

import type { CatalogueModel } from '#shared/catalogue.ts'

/** A file of a model's source. */
export interface ListedFile {
  readonly path: string
  readonly bytes: number
}

/** A source to fetch: that of a model, whose files are chosen, or files by name. */
export interface WantedSource
  extends Pick<CatalogueModel, 'id' | 'source' | 'options'>,
    Partial<Pick<CatalogueModel, 'kind'>> {
  /** Chosen by the layout of the source if absent. */
  readonly files?: readonly string[]
  /** `checkpoint`: PyTorch weights in safetensors files, from which a graph is made. */
  readonly layout?: 'checkpoint'
}

type Wanted = Pick<WantedSource, 'options' | 'kind' | 'files' | 'layout'>

/** The kind of a source, derived from its files. */
type Layout = 'pipeline' | 'single'

const CONFIG_BYTES_MAX = 128 * 1024 * 1024
const CONFIG_NAMES =
  /(^|\/)([\w.-]+\.jinja|merges\.txt|vocab\.txt|tokens\.txt|artifact\.metadata|(?!manifest\.)[\w.-]+\.json)$/
// Vocabularies of other tokenizers, which a tokenizer.json beside them makes superfluous.
const VOCABULARIES =
  /(^|\/)((spiece|spm|tokenizer|tiktoken|sentencepiece(\.bpe)?)\.model|source\.spm|tekken\.json|[\w.-]+\.tiktoken)$/
// Indexes of weights in other formats, and records of an export.
const USELESS_NAMES = /\.index\.json$|(^|\/)(quantize|quant)_config\.json$|^onnx\/.*\.json$/
// Styles of a speech model's voices: a file for each, or an archive beside the graph.
const VOICES = /^voices\/[\w-]+\.(bin|npy)$|^voices[\w.-]*\.(bin|npz)$/
// Layers after the pooling of a sentence encoder, which a graph may lack.
const DENSE_WEIGHTS = /^\d+_Dense\/model\.safetensors$/
// Unused parts of image pipelines.
const UNUSED_FOLDERS = ['safety_checker', 'feature_extractor']
// Files beside a graph without tensors of it: graphs and their data, texts, other formats.
const NO_TENSORS = [
  /\.onnx([._].*)?$/,
  /^(\.|[A-Z_]+$)/,
  /\.(data|json|jsonl|jinja|md|txt|pdf|html|yaml|yml|py|model|spm|xml|png|jpe?g|gif|webp|svg|wav|tiktoken)$/,
  /\.(pb|bin|pth?|ot|ckpt|h5|npy|npz|safetensors|msgpack|gguf|ort|tflite|zip|gz|index)$/,
]
const SUFFIX = /_(quantized|int8|uint8|q4|q4f16|bnb4|fp16)$/

/**
 * The files of a source that a model needs: its configuration and tokenizer, and for each graph one
 * kind of weights with its external data. Throws when there is no graph among them.
 */
export function chooseFiles<File extends ListedFile>(
  files: readonly File[],
  model: Wanted,
): readonly File[] {
  const paths = files.map(({ path }) => path)
  if (model.files !== undefined) {
    const missing = model.files.find((name) => !paths.includes(name))
    if (missing !== undefined) throw new Error(`there is no ${missing} among its files`)
    return files.filter(({ path }) => model.files?.includes(path))
  }
  if (model.layout === 'checkpoint') return chooseCheckpoint(files)
  const variant = variantFolder(files, model.options)
  if (variant !== '.') {
    const inside = files.flatMap((file) => {
      return isBelow(file.path, variant)
        ? [{ ...file, path: file.path.slice(variant.length + 1), file }]
        : []
    })
    const options = { ...model.options, ...graphOf(variant, model.options) }
    return chooseFiles(inside, { ...model, options }).map(({ file }) => file)
  }
  const layout = paths.includes('model_index.json') ? 'pipeline' : 'single'
  const graphs = chooseGraphs(
    paths.filter((path) => path.endsWith('.onnx')),
    layout,
    model,
  )
  if (graphs.length === 0) {
    const { onnxFile } = model.options
    const wanted = onnxFile === undefined ? 'no ONNX file' : `no onnx/${onnxFile}.onnx`
    throw new Error(`there is ${wanted} among its files`)
  }
  return files.filter(
    ({ path, bytes }) =>
      graphs.includes(path) ||
      graphs.some((graph) => isExternalData(path, graph)) ||
      isConfiguration({ path, bytes }, paths),
  )
}

/** Words in the names of folders, best first. */
const VARIANT_WORDS = {
  cpu: ['cpu', 'mobile', 'int4', 'acc-level-4'],
  cuda: ['cuda', 'gpu', 'fp16', 'int4'],
} as const
const VARIANT_CONFIGS = ['genai_config.json', 'config.json']

/**
 * The folder of a source's model, if it has several, each with a configuration, as those for
 * onnxruntime-genai (`cpu_and_mobile/cpu-int4-rtn-block-32`): the one on the path of `onnxFile`, or
 * the one whose name fits the execution provider best. `.` for all other sources.
 */
export function variantFolder(
  files: readonly ListedFile[],
  { onnxFile, executionProvider = 'cpu' }: WantedSource['options'],
): string {
  const paths = new Set(files.map(({ path }) => path))
  if (onnxFile?.includes('/')) return folderOnPath(onnxFile, paths)
  const graphs = [...paths].filter((path) => path.endsWith('.onnx'))
  const isUsual = graphs.some((path) => ['.', 'onnx'].includes(dirname(path)))
  if (isUsual || paths.has('model_index.json')) return '.'
  const found = new Set(graphs.map((path) => dirname(path)))
  const variants = [...found].filter((folder) => {
    const names = onnxFile === undefined ? [] : [onnxFile, `${onnxFile}.onnx`]
    const hasGraph = names.length === 0 || names.some((name) => paths.has(join(folder, name)))
    return hasGraph && VARIANT_CONFIGS.some((name) => paths.has(join(folder, name)))
  })
  const words = VARIANT_WORDS[executionProvider]
  const rank = (folder: string): number =>
    words.reduce((sum, word, at) => sum + (folder.includes(word) ? 2 ** -at : 0), 0)
  return variants.toSorted((a, b) => rank(b) - rank(a) || (a < b ? -1 : 1))[0] ?? '.'
}

/** The nearest folder of a graph that has a configuration. */
function folderOnPath(onnxFile: string, paths: ReadonlySet<string>): string {
  const parts = dirname(onnxFile).split('/')
  const folders = parts.map((_part, at) => parts.slice(0, parts.length - at).join('/'))
  const isConfigured = (folder: string) =>
    VARIANT_CONFIGS.some((name) => paths.has(join(folder, name)))
  // Copies of the configuration beside graphs in `onnx/` are incomplete.
  const isCopy = (folder: string) => basename(folder) === 'onnx' && isConfigured(dirname(folder))
  const [nearest = '.'] = folders
  if (VOICE_ENDINGS.some((ending) => paths.has(`${onnxFile}${ending}`))) return nearest
  return folders.find((folder) => isConfigured(folder) && !isCopy(folder)) ?? '.'
}

// The configuration of a Piper voice is named after its graph.
const VOICE_ENDINGS = ['.json', '.onnx.json']

/** The same graph by its path in a folder of the source. */
function graphOf(folder: string, { onnxFile }: WantedSource['options']): { onnxFile?: string } {
  return onnxFile?.includes('/') ? { onnxFile: relative(folder, onnxFile) } : {}
}

function isBelow(path: string, folder: string): boolean {
  return path.startsWith(`${folder}/`)
}

const WHOLE_CHECKPOINT = 'model.safetensors'
const CHECKPOINT_INDEX = 'model.safetensors.index.json'
const CHECKPOINT_SHARD = /^model-\d+-of-\d+\.safetensors$/

/** Configuration, tokenizer and weights in one file, or in several and their index. */
function chooseCheckpoint<File extends ListedFile>(files: readonly File[]): readonly File[] {
  const paths = files.map(({ path }) => path)
  const isThere = (name: string) => paths.includes(name)
  if (!isThere(WHOLE_CHECKPOINT) && !isThere(CHECKPOINT_INDEX)) {
    throw new Error(`there is no ${WHOLE_CHECKPOINT} among its files`)
  }
  return files.filter(({ path, bytes }) => {
    // The index takes precedence if both exist.
    if (isThere(CHECKPOINT_INDEX)) {
      if (path === CHECKPOINT_INDEX || CHECKPOINT_SHARD.test(path)) return true
    } else if (path === WHOLE_CHECKPOINT) return true
    return dirname(path) === '.' && isConfiguration({ path, bytes }, paths)
  })
}

function chooseGraphs(paths: readonly string[], layout: Layout, model: Wanted): readonly string[] {
  const { onnxFile } = model.options
  if (onnxFile !== undefined) {
    const names = [onnxFile, `${onnxFile}.onnx`].flatMap((name) => [`onnx/${name}`, name])
    const found = names.find((name) => paths.includes(name))
    return found === undefined ? [] : [found, ...companionsOf(found, paths)]
  }
  return foldersOf(paths, layout).flatMap((folder) => {
    const stems = paths
      .filter((path) => dirname(path) === folder)
      .map((path) => basename(path, '.onnx'))
    return chooseStems(stems, layout, model).map((stem) =>
      folder === '.' ? `${stem}.onnx` : `${folder}/${stem}.onnx`,
    )
  })
}

/** Graphs beside a decoder that reads embeddings: those for tokens and for images. */
const VISION_ROLES = ['embed_tokens', 'vision_encoder']

/** Graphs of a model that embeds texts and images; `model` beside them combines both. */
const TOWER_ROLES = ['text_model', 'vision_model']

/** The companion graphs of a graph, with the same kind of weights if available. */
function companionsOf(graph: string, paths: readonly string[]): readonly string[] {
  const suffix = /^(?:decoder_model(?:_merged)?|text_model)(.*)\.onnx$/.exec(basename(graph))?.[1]
  if (suffix === undefined) return []
  const find = (...stems: readonly string[]) =>
    stems.map((stem) => join(dirname(graph), `${stem}.onnx`)).find((path) => paths.includes(path))
  const encoder = find(`encoder_model${suffix}`, 'encoder_model')
  const isPair = basename(graph) === `decoder_model${suffix}.onnx`
  const second = isPair ? find(`decoder_with_past_model${suffix}`) : undefined
  const ofVision = [...VISION_ROLES, 'vision_model'].map((role) => find(`${role}${suffix}`, role))
  return [encoder, second, ...ofVision].filter((path) => path !== undefined)
}

/** A pipeline has a folder for each of its graphs; other models keep their graphs in one. */
function foldersOf(paths: readonly string[], layout: Layout): readonly string[] {
  const folders = [...new Set(paths.map((path) => dirname(path)))]
  if (layout === 'pipeline') return folders.filter((folder) => !UNUSED_FOLDERS.includes(folder))
  return folders.includes('onnx') ? ['onnx'] : folders.filter((folder) => folder === '.')
}

function chooseStems(stems: readonly string[], layout: Layout, model: Wanted): readonly string[] {
  const roles = rolesOf([...new Set(stems.map((stem) => stem.replace(SUFFIX, '')))], model.kind)
  const { executionProvider = 'cpu' } = model.options
  const isPair = roles.includes('encoder_model')
  // A speech recognition model with a single graph uses CTC.
  const isCtc = model.kind === 'audio' && !isPair
  const isPrecise =
    layout === 'pipeline' || model.kind === 'embedding' || model.kind === 'speech' || isCtc
  const isSpeech = isPair && model.kind !== 'completion'
  const isText = executionProvider === 'cpu' && !isSpeech
  const suffixes = WEIGHT_SUFFIXES[isPrecise ? 'precise' : isText ? 'text' : executionProvider]
  return roles.flatMap((role) => {
    const suffix = suffixes.find((candidate) => stems.includes(`${role}${candidate}`))
    return suffix === undefined ? [] : [`${role}${suffix}`]
  })
}

/**
 * The graphs of a folder that are run: one for text, with separate graphs of embeddings if there
 * are any; an encoder and its decoder for speech and translation; two towers for vectors of texts
 * and images.
 */
function rolesOf(
  roles: readonly string[],
  kind: CatalogueModel['kind'] | undefined,
): readonly string[] {
  const has = (role: string) => roles.includes(role)
  const whole = kind === 'speech' ? wholeGraph(roles) : undefined
  if (whole !== undefined) return [whole]
  const isPair = has('encoder_model')
  if (kind === 'embedding' && TOWER_ROLES.every(has)) return TOWER_ROLES
  if (!isPair && has('model')) return ['model']
  if (has('prefill') && has('decode')) return ['decode']
  if (!has('decoder_model_merged')) return roles
  if (isPair) return ['encoder_model', 'decoder_model_merged']
  return ['decoder_model_merged', ...VISION_ROLES.filter(has)]
}

/**
 * The name that is a prefix of all others: `kokoro-v1.0` beside `kokoro-v1.0.int8`, the same graph
 * with other weights.
 */
export function wholeGraph(stems: readonly string[]): string | undefined {
  return stems.find((stem) =>
    stems.every((other) => other === stem || other.startsWith(`${stem}.`)),
  )
}

/**
 * Exports over 2 GB keep their weights beside the graph: under one of a few names, or each tensor
 * in a file of its name, such as `onnx__MatMul_3442` and `Constant_7_attr__value`.
 */
function isExternalData(path: string, graph: string): boolean {
  if (path === graph || dirname(path) !== dirname(graph)) return false
  const name = basename(path)
  const graphName = basename(graph)
  return (
    name.startsWith(`${graphName}_data`) ||
    name.startsWith(`${graphName}.data`) ||
    name === `${basename(graph, '.onnx')}.data` ||
    name === 'weights.pb' ||
    !NO_TENSORS.some((pattern) => pattern.test(name))
  )
}

function isConfiguration({ path, bytes }: ListedFile, paths: readonly string[]): boolean {
  const depth = path.split('/').length
  if (DENSE_WEIGHTS.test(path) || VOICES.test(path)) return true
  const isNeeded = VOCABULARIES.test(path)
    ? !paths.includes(join(dirname(path), 'tokenizer.json'))
    : CONFIG_NAMES.test(path)
  return (
    depth <= 2 &&
    bytes <= CONFIG_BYTES_MAX &&
    isNeeded &&
    !USELESS_NAMES.test(path) &&
    !UNUSED_FOLDERS.includes(dirname(path))
  )
}

/**
 * File name suffixes of one graph by the kind of its weights, best first. Fetching and loading use
 * the same lists, so that a fetched file is found.
 */
export const WEIGHT_SUFFIXES = {
  // For processors 8-bit weights are about three times as fast as 32-bit ones at hardly any loss;
  // 4-bit ones lose more; 16-bit ones are computed as 32-bit there.
  cpu: ['_quantized', '_int8', '_uint8', '', '_q4', '_q4f16', '_bnb4', '_fp16'],
  // Text decoders on a processor: quantized weights in blocks first. Graphs that quantize
  // activations come last, because rows change each other's results, so that batching and reuse are
  // impossible.
  text: ['_q4', '_q4f16', '', '_fp16', '_bnb4', '_quantized', '_int8', '_uint8'],
  // On a GPU half precision is native, and 8-bit kernels are slow.
  cuda: ['_fp16', '_q4f16', '', '_quantized', '_int8', '_uint8', '_q4', '_bnb4'],
  // Images lose visible quality with 8-bit weights, and vectors are compared with those of other
  // models.
  precise: ['', '_fp16', '_quantized', '_int8', '_uint8', '_q4', '_q4f16', '_bnb4'],
} as const
