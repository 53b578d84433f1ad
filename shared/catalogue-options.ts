import type { ModelKind } from '#shared/contracts/job.ts'

import { REASONING_FORMATS, type ReasoningFormatName } from './contracts/answer-formats.ts'
import { CALL_FORMATS, type CallFormatName } from './contracts/call-formats.ts'
import { isRecord } from './json.ts'

/** As sentence-transformers names them. */
const POOLING_MODES = ['mean', 'cls', 'lasttoken', 'max', 'weightedmean'] as const

/** Settings of one model; each is optional and read by its engine. */
export interface ModelOptions {
  /** Rows of the batch: how many sequences (or requests) run at once. */
  readonly slots?: number
  /** Overrides the context length of the model's own configuration, downwards. */
  readonly maxContextTokens?: number
  readonly maxBatchTokens?: number
  /** The largest number of tokens of one image, for models that read images near their own size. */
  readonly maxImageTokens?: number
  /** File stem below `onnx/`, such as `model_quantized`; the best available one when absent. */
  readonly onnxFile?: string
  readonly executionProvider?: 'cpu' | 'cuda'
  readonly intraOpThreads?: number
  /** How token vectors are pooled into one, where the model's files do not say so. */
  readonly pooling?: (typeof POOLING_MODES)[number]
  /** Whether the leading dimensions are embeddings by themselves, where the files do not say so. */
  readonly matryoshka?: boolean
  readonly queryPrefix?: string
  readonly passagePrefix?: string
  /** Tokens read of a document. Replaces the length in the files of a multi-vector model. */
  readonly documentLength?: number
  /** The vocabulary of token ids sent to `/v1/embeddings`: the model's own or cl100k_base. */
  readonly tokenIdVocabulary?: 'native' | 'reject'
  /** Defaults for images when the request sets none. */
  readonly steps?: number
  readonly guidance?: number
  /** Pixels per side of the tiles in which larger images are decoded and encoded. */
  readonly tileSize?: number
  /**
   * Whether organizations share cached prefixes. A common system prompt is then computed once, but
   * each organization can measure which prompts others have sent.
   */
  readonly sharedPrefixCache?: boolean
  /**
   * Whether answers are drafted from repetitions of the prompt and of themselves while one text
   * runs alone. A text that is resumed on another worker may then be rounded differently.
   */
  readonly promptLookup?: boolean
  /** How the model writes calls; read from its chat template when absent. */
  readonly toolParser?: CallFormatName
  /** How the model marks its reasoning; `none` leaves it in the text. */
  readonly reasoningParser?: ReasoningFormatName | 'none'
  /** The category of moderation that each label of a classifier means; null for harmless ones. */
  readonly categories?: Readonly<Record<string, string | null>>
  /** The folder of a model that finds speech (Silero VAD), for `chunking_strategy`. */
  readonly voiceActivityModel?: string
  /** Jobs that may wait in the queue before new ones are refused. */
  readonly maxQueueDepth?: number
}

/**
 * The engine that reads an option. Rerankers, classifiers, sparse encoders and multi-vector models
 * have the kind `embedding` but read other options; a model that embeds texts and images reads one
 * more.
 */
type OptionReader =
  | ModelKind
  | ('rerank' | 'classify' | 'classify-images' | 'sparse' | 'multi-vector')
  | 'vision'

interface Rule {
  /** The kinds of models that read the option; all kinds when absent. */
  readonly readers?: readonly OptionReader[]
  /** The accepted values, as the error message lists them. */
  readonly must: string
  readonly holds: (value: unknown) => boolean
}

const within =
  (min: number, max: number) =>
  (value: unknown): boolean =>
    typeof value === 'number' && value >= min && value <= max
const count = (min: number, max: number): Omit<Rule, 'readers'> => ({
  must: `must be a number: whole, from ${min} to ${max}`,
  holds: (value) => Number.isInteger(value) && within(min, max)(value),
})
const choice = (...names: readonly string[]): Omit<Rule, 'readers'> => ({
  must: `must be ${names.map((name) => `"${name}"`).join(' or ')}`,
  holds: (value) => typeof value === 'string' && names.includes(value),
})
const truth = {
  must: 'must be true or false',
  holds: (value: unknown) => typeof value === 'boolean',
}
const text = { must: 'must be a string', holds: (value: unknown) => typeof value === 'string' }

const ENCODERS: readonly OptionReader[] = [
  ...(['embedding', 'rerank', 'classify', 'sparse', 'multi-vector'] as const),
]

// No segment begins with a dot.
const GRAPH_PATH = /^[\w+-][\w.+-]*(\/[\w+-][\w.+-]*)*$/

const RULES: Readonly<Record<keyof ModelOptions, Rule>> = {
  slots: count(1, 4096),
  maxContextTokens: {
    readers: ['completion', ...ENCODERS],
    ...count(1, 10_000_000),
  },
  maxBatchTokens: { readers: ENCODERS, ...count(1, 10_000_000) },
  maxImageTokens: { readers: ['vision'], ...count(4, 16_384) },
  onnxFile: {
    readers: ['completion', ...ENCODERS, 'classify-images', 'audio', 'speech'],
    must: 'must be the name of a graph, such as "model_quantized", or its path in the source',
    holds: (value) => typeof value === 'string' && value.length <= 200 && GRAPH_PATH.test(value),
  },
  executionProvider: choice('cpu', 'cuda'),
  intraOpThreads: count(0, 256),
  pooling: { readers: ['embedding'], ...choice(...POOLING_MODES) },
  matryoshka: { readers: ['embedding', 'multi-vector'], ...truth },
  queryPrefix: { readers: ['embedding', 'sparse', 'multi-vector'], ...text },
  passagePrefix: { readers: ['embedding', 'sparse', 'multi-vector'], ...text },
  documentLength: { readers: ['multi-vector'], ...count(1, 10_000_000) },
  tokenIdVocabulary: { readers: ['embedding'], ...choice('native', 'reject') },
  // The default cannot exceed the limit for requests.
  steps: { readers: ['image'], ...count(1, 150) },
  guidance: {
    readers: ['image'],
    must: 'must be a number from 0 to 30',
    holds: within(0, 30),
  },
  tileSize: { readers: ['image'], ...count(64, 4096) },
  sharedPrefixCache: { readers: ['completion'], ...truth },
  promptLookup: { readers: ['completion'], ...truth },
  toolParser: { readers: ['completion'], ...choice(...Object.keys(CALL_FORMATS)) },
  reasoningParser: {
    readers: ['completion'],
    ...choice(...Object.keys(REASONING_FORMATS), 'none'),
  },
  categories: {
    readers: ['classify', 'classify-images'],
    must: 'must name a category, or null, for labels of the model',
    holds: (value) =>
      isRecord(value) &&
      Object.values(value).every((name) => name === null || typeof name === 'string'),
  },
  voiceActivityModel: {
    readers: ['audio'],
    must: 'must be a folder',
    holds: (value) =>
      typeof value === 'string' && /^(?![a-z][a-z\d+.-]+:)[^\0]{1,4096}$/i.test(value),
  },
  maxQueueDepth: count(1, Number.MAX_SAFE_INTEGER),
}

/**
 * Checks the options of an entry of `models.json`. Throws an `Error` that names the invalid one.
 */
export function parseOptions(
  record: Record<string, unknown>,
  {
    kind,
    readsImages,
    path,
  }: { readonly kind: OptionReader; readonly readsImages: boolean; readonly path: string },
): ModelOptions {
  const isRead = ({ readers }: Rule): boolean =>
    readers === undefined || readers.includes(kind) || (readsImages && readers.includes('vision'))
  for (const [name, value] of Object.entries(record)) {
    const rule = Object.hasOwn(RULES, name) ? RULES[name as keyof ModelOptions] : undefined
    if (rule === undefined) {
      const known = Object.keys(RULES).join(', ')
      throw new Error(`models.json: ${path}.${name} is not a known option; known: ${known}`)
    }
    if (!isRead(rule)) {
      throw new Error(
        `models.json: ${path}.${name} changes nothing for ${MODELS[kind]}, only for ${namesOf(rule.readers ?? [])}`,
      )
    }
    if (!rule.holds(value)) throw new Error(`models.json: ${path}.${name} ${rule.must}`)
  }
  return record as ModelOptions
}

const MODELS: Readonly<Record<OptionReader, string>> = {
  completion: 'models of texts',
  embedding: 'models of embeddings',
  rerank: 'rerankers',
  classify: 'classifiers of texts',
  'classify-images': 'classifiers of images',
  sparse: 'sparse encoders',
  'multi-vector': 'models of several vectors',
  image: 'models of images',
  audio: 'models of speech',
  speech: 'voices',
  vision: 'models that read images',
}

function namesOf(readers: readonly OptionReader[]): string {
  return readers.map((reader) => MODELS[reader]).join(', ')
}
