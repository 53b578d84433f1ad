import type { QueueKind } from './contracts/queues.ts'

/** One model that this installation offers, as `models.json` lists it. */
export interface CatalogueModel {
  readonly id: string
  readonly kind: QueueKind
  /** Folder (relative to the repository or absolute) or `hub:<owner>/<repo>[@revision]` or `s3:<prefix>`. */
  readonly source: string
  /** Well-known names that clients may use instead of `id`. */
  readonly aliases: readonly string[]
  readonly ownedBy: string
  /** Unix seconds, as `GET /v1/models` shows it. */
  readonly created: number
  /** What the model may be asked for, beyond its kind: `chat`, `completion`, `edit`, `rerank`, `search`, …  */
  readonly capabilities: readonly string[]
  readonly options: ModelOptions
}

/** Settings of one model; each is optional and read by its engine. */
export interface ModelOptions {
  /** Rows of the batch: how many sequences (or requests) run at once. */
  readonly slots?: number
  /** Overrides the context length of the model's own configuration, downwards. */
  readonly maxContextTokens?: number
  readonly maxBatchTokens?: number
  /** File stem below `onnx/`, such as `model_quantized`; the best present one when absent. */
  readonly onnxFile?: string
  readonly executionProvider?: 'cpu' | 'cuda'
  readonly intraOpThreads?: number
  readonly queryPrefix?: string
  readonly passagePrefix?: string
  /** What token ids sent to `/v1/embeddings` mean: the model's own vocabulary or cl100k_base. */
  readonly tokenIdVocabulary?: 'native' | 'reject'
  /** How pictures are drawn when the request does not say. */
  readonly steps?: number
  readonly guidance?: number
  /** Largest number of requests waiting in the queue before new ones are refused. */
  readonly maxQueueDepth?: number
}

/** The models of an installation: lookup by id or alias. */
export interface Catalogue {
  readonly models: readonly CatalogueModel[]
  /** The model behind an id or alias, or undefined. */
  find(idOrAlias: string): CatalogueModel | undefined
}

/** Checks the parsed content of `models.json`. Throws an `Error` naming the entry and field. */
export function parseCatalogue(content: unknown): Catalogue {
  const list = asRecord(content, 'models.json').models
  if (!Array.isArray(list)) throw new Error('models.json: "models" must be an array')
  const models = list.map((entry, index) => parseModel(entry, `models[${index}]`))
  const byName = new Map<string, CatalogueModel>()
  for (const model of models) {
    for (const name of [model.id, ...model.aliases]) {
      if (byName.has(name)) throw new Error(`models.json: "${name}" names two models`)
      byName.set(name, model)
    }
  }
  return { models, find: (name) => byName.get(name) }
}

const KINDS: readonly string[] = ['completion', 'embedding', 'image', 'audio']
const OPTION_TYPES = {
  slots: 'number',
  maxContextTokens: 'number',
  maxBatchTokens: 'number',
  onnxFile: 'string',
  executionProvider: 'string',
  intraOpThreads: 'number',
  queryPrefix: 'string',
  passagePrefix: 'string',
  tokenIdVocabulary: 'string',
  steps: 'number',
  guidance: 'number',
  maxQueueDepth: 'number',
} as const satisfies Record<keyof ModelOptions, 'number' | 'string'>

function parseModel(entry: unknown, path: string): CatalogueModel {
  const record = asRecord(entry, path)
  const kind = text(record, 'kind', path)
  if (!KINDS.includes(kind)) {
    throw new Error(`models.json: ${path}.kind must be one of ${KINDS.join(', ')}`)
  }
  const id = text(record, 'id', path)
  return {
    id,
    kind: kind as QueueKind,
    source: text(record, 'source', path),
    aliases: texts(record.aliases, `${path}.aliases`),
    ownedBy: typeof record.owned_by === 'string' ? record.owned_by : 'millrace',
    created: typeof record.created === 'number' ? record.created : 0,
    capabilities: texts(record.capabilities, `${path}.capabilities`),
    options: parseOptions(record.options ?? {}, `${path}.options`),
  }
}

function parseOptions(value: unknown, path: string): ModelOptions {
  const record = asRecord(value, path)
  for (const [name, option] of Object.entries(record)) {
    const type = OPTION_TYPES[name as keyof ModelOptions]
    if (type === undefined) throw new Error(`models.json: ${path}.${name} is not a known option`)
    if (typeof option !== type) throw new Error(`models.json: ${path}.${name} must be a ${type}`)
  }
  return record as ModelOptions
}

function asRecord(value: unknown, path: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new Error(`models.json: ${path} must be an object`)
  }
  return value as Record<string, unknown>
}

function text(record: Record<string, unknown>, field: string, path: string): string {
  const value = record[field]
  if (typeof value === 'string' && value !== '') return value
  throw new Error(`models.json: ${path}.${field} must be a non-empty string`)
}

function texts(value: unknown, path: string): readonly string[] {
  if (value === undefined) return []
  if (Array.isArray(value) && value.every((entry) => typeof entry === 'string')) return value
  throw new Error(`models.json: ${path} must be an array of strings`)
}
