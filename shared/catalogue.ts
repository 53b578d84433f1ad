import { MODEL_KINDS, type ModelKind, type QueueKind } from '#shared/contracts/job.ts'

import { type ModelOptions, parseOptions } from './catalogue-options.ts'

/** One model that this installation offers, as `models.json` lists it. */
export interface CatalogueModel {
  readonly id: string
  readonly kind: QueueKind
  /**
   * Folder (relative to the repository or absolute) or `hub:<owner>/<repo>[@revision]` or
   * `s3:<prefix>`.
   */
  readonly source: string
  /** Well-known names that clients may use instead of `id`. */
  readonly aliases: readonly string[]
  readonly ownedBy: string
  /** Unix seconds, as `GET /v1/models` shows it. */
  readonly created: number
  /** Abilities beyond those of the kind: `chat`, `completion`, `edit`, `rerank`, `search`, … */
  readonly capabilities: readonly string[]
  readonly options: ModelOptions
  /** Prices for the costs that the console shows; absent when nothing is charged. */
  readonly price?: ModelPrice
  /** Set when the model is another one with a low-rank adapter: jobs run on the other one. */
  readonly adapter?: ModelAdapter
}

/** The fields that make one model from another. */
interface ModelAdapter {
  /** The id of the base model. */
  readonly baseId: string
  /** A folder, `s3:<prefix>` or `hub:<owner>/<repo>`. */
  readonly source: string
}

/** The id of the model on whose queue and workers the jobs of a model run. */
export function servingIdOf({ id, adapter }: Pick<CatalogueModel, 'id' | 'adapter'>): string {
  return adapter?.baseId ?? id
}

/** Prices of a million tokens, in the currency of the installation. */
interface ModelPrice {
  readonly input: number
  readonly output: number
}

/** The models of an installation: lookup by id or alias. */
export interface Catalogue {
  /** A model with an adapter follows its base model. */
  readonly models: readonly CatalogueModel[]
  /** The model behind an id or alias, or undefined. */
  find(idOrAlias: string): CatalogueModel | undefined
}

/** Checks the parsed content of `models.json`. Throws an `Error` naming the entry and field. */
export function parseCatalogue(content: unknown): Catalogue {
  const root = asRecord(content, 'models.json')
  refuseUnknownKeys(root, ROOT_KEYS, 'models.json')
  const list = root.models
  if (!Array.isArray(list)) throw new Error('models.json: "models" must be an array')
  const placed = list.flatMap((entry, index) => parseEntry(entry, `models[${index}]`))
  const byName = new Map<string, CatalogueModel>()
  const places = new Map<string, string>()
  for (const { model, path } of placed) {
    for (const [name, place] of namesOf(model, path)) {
      const earlier = places.get(name)
      if (earlier !== undefined) {
        throw new Error(`models.json: "${name}" names two models: ${earlier} and ${place}`)
      }
      places.set(name, place)
      byName.set(name, model)
    }
  }
  return { models: placed.map(({ model }) => model), find: (name) => byName.get(name) }
}

/**
 * One row for each queue of the installation: a queue for every model, and one of kind `training`
 * for each model with the capability `fine-tune`.
 */
export function queuesOf({ models }: Pick<Catalogue, 'models'>): readonly CatalogueModel[] {
  const served = models.filter(({ adapter }) => adapter === undefined)
  const tunable = served.filter(({ capabilities }) => capabilities.includes('fine-tune'))
  const trainings = tunable.map((model): CatalogueModel => {
    // These limits apply to requests to the base model itself.
    const { slots: _slots, maxQueueDepth: _depth, ...options } = model.options
    return { ...model, kind: 'training', options }
  })
  return [...served, ...trainings]
}

// Editors read the schema from this field.
const ROOT_KEYS = ['models', '$schema']
const MODEL_KEYS = [
  ...['id', 'kind', 'source', 'aliases', 'owned_by', 'created', 'capabilities', 'options'],
  ...['price', 'adapters'],
]
const ADAPTER_KEYS = ['id', 'source', 'aliases']
const CAPABILITIES: Readonly<Record<ModelKind, readonly string[]>> = {
  completion: ['chat', 'completion', 'edit', 'search', 'vision', 'fine-tune'],
  embedding: ['embedding', 'vision', 'rerank', 'classify', 'sparse', 'multi-vector'],
  image: ['generate', 'edit', 'variation'],
  audio: ['transcribe', 'translate'],
  speech: ['speak'],
}
/** The capabilities of a model that lists none; models of other kinds then support everything. */
const UNLISTED: Readonly<Partial<Record<ModelKind, readonly string[]>>> = {
  completion: ['chat', 'completion'],
}
/** Capabilities that replace the dense embeddings of an embedding model by another output. */
const SINGLE_TASKS = ['multi-vector', 'rerank', 'classify', 'sparse'] as const
// A lone surrogate cannot be part of a queue name or a URL.
const NAME = /^[^\p{Cc}\p{Cs}]{1,200}$/u
const HUB_SOURCE = /^hub:[\w.-]+\/[\w.-]+(@[\w./-]+)?$/
const STORED_SOURCE = /^s3:\/*[^/]/

interface PlacedModel {
  readonly model: CatalogueModel
  readonly path: string
}

/** A model of the list and a model for each of its adapters. */
function parseEntry(entry: unknown, path: string): PlacedModel[] {
  const record = asRecord(entry, path)
  const model = parseModel(record, path)
  const { adapters = [] } = record
  if (!Array.isArray(adapters)) throw new Error(`models.json: ${path}.adapters must be an array`)
  if (adapters.length > 0 && model.kind !== 'completion') {
    throw new Error(
      `models.json: ${path}.adapters changes nothing for a model of kind ${model.kind}`,
    )
  }
  const adapted = adapters.map((adapter: unknown, index): PlacedModel => {
    const at = `${path}.adapters[${index}]`
    return { model: parseAdapter(asRecord(adapter, at), { path: at, base: model }), path: at }
  })
  return [{ model, path }, ...adapted]
}

function parseAdapter(
  record: Record<string, unknown>,
  { path, base }: { readonly path: string; readonly base: CatalogueModel },
): CatalogueModel {
  refuseUnknownKeys(record, ADAPTER_KEYS, path)
  return {
    ...base,
    id: checkName(text(record, 'id', path), `${path}.id`),
    aliases: parseAliases(record, path),
    capabilities: base.capabilities.filter((name) => name !== 'fine-tune'),
    adapter: {
      baseId: base.id,
      source: checkSource(text(record, 'source', path), `${path}.source`),
    },
  }
}

function parseAliases(record: Record<string, unknown>, path: string): readonly string[] {
  return texts(record.aliases, `${path}.aliases`).map((alias, index) =>
    checkName(alias, `${path}.aliases[${index}]`),
  )
}

function parseModel(record: Record<string, unknown>, path: string): CatalogueModel {
  refuseUnknownKeys(record, MODEL_KEYS, path)
  const kind = MODEL_KINDS.find((known) => known === text(record, 'kind', path))
  if (kind === undefined) {
    throw new Error(`models.json: ${path}.kind must be one of ${MODEL_KINDS.join(', ')}`)
  }
  const listed = texts(record.capabilities, `${path}.capabilities`)
  const capabilities = listed.length === 0 ? (UNLISTED[kind] ?? []) : listed
  const unknown = capabilities.find((name) => !CAPABILITIES[kind].includes(name))
  if (unknown !== undefined) {
    const known = CAPABILITIES[kind].join(', ')
    throw new Error(
      `models.json: ${path}.capabilities: "${unknown}" is not one of a model of kind ${kind}: ${known}`,
    )
  }
  const task = SINGLE_TASKS.find((single) => capabilities.includes(single))
  const readsImages = capabilities.includes('vision')
  if (task !== undefined && task !== 'classify' && readsImages) {
    throw new Error(`models.json: ${path}.capabilities: "vision" has no effect with "${task}"`)
  }
  return {
    id: checkName(text(record, 'id', path), `${path}.id`),
    kind,
    source: checkSource(text(record, 'source', path), `${path}.source`),
    aliases: parseAliases(record, path),
    ownedBy: record.owned_by === undefined ? 'millrace' : text(record, 'owned_by', path),
    created: parseCreated(record.created, `${path}.created`),
    capabilities,
    options: parseOptions(
      asRecord(record.options === undefined ? {} : record.options, `${path}.options`),
      {
        kind: task === 'classify' && readsImages ? 'classify-images' : (task ?? kind),
        readsImages: kind === 'completion' && readsImages,
        path: `${path}.options`,
      },
    ),
    ...(record.price !== undefined && { price: parsePrice(record.price, `${path}.price`) }),
  }
}

function parsePrice(value: unknown, path: string): ModelPrice {
  const record = asRecord(value, path)
  refuseUnknownKeys(record, ['input', 'output'], path)
  const amount = (name: 'input' | 'output'): number => {
    const given = record[name] ?? 0
    if (typeof given === 'number' && Number.isFinite(given) && given >= 0) return given
    throw new Error(`models.json: ${path}.${name} must be a number, 0 or more`)
  }
  return { input: amount('input'), output: amount('output') }
}

function namesOf(model: CatalogueModel, path: string): readonly (readonly [string, string])[] {
  return [
    [model.id, `${path}.id`],
    ...model.aliases.map((alias, index) => [alias, `${path}.aliases[${index}]`] as const),
  ]
}

function checkName(name: string, path: string): string {
  if (NAME.test(name) && name.trim() === name) return name
  throw new Error(
    `models.json: ${path} must have 1 to 200 characters, none of them for control and no space around them`,
  )
}

/** A source without a scheme is a folder; an unknown scheme is an error. */
function checkSource(source: string, path: string): string {
  const scheme = /^[a-z][a-z\d+.-]+:/i.exec(source)?.[0]
  if (scheme === undefined) return source
  const isClimbing = /[:/@]\.+(\/|@|$)/.test(source)
  if (!isClimbing && (HUB_SOURCE.test(source) || STORED_SOURCE.test(source))) return source
  throw new Error(
    `models.json: ${path} must be a folder, hub:owner/name@revision or s3:prefix, not "${source}"`,
  )
}

function parseCreated(value: unknown, path: string): number {
  if (value === undefined) return 0
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number
  throw new Error(`models.json: ${path} must be a whole number of seconds since 1970`)
}

function refuseUnknownKeys(
  record: Record<string, unknown>,
  known: readonly string[],
  path: string,
): void {
  const unknown = Object.keys(record).find((name) => !known.includes(name))
  if (unknown === undefined) return
  const where = path === 'models.json' ? path : `models.json: ${path}`
  throw new Error(`${where}: "${unknown}" is not a known key; known: ${known.join(', ')}`)
}

function asRecord(value: unknown, path: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new Error(`models.json: ${path} must be an object`)
  }
  return value as Record<string, unknown>
}

function text(record: Record<string, unknown>, field: string, path: string): string {
  const value = record[field]
  if (typeof value === 'string' && value.trim() !== '') return value
  throw new Error(`models.json: ${path}.${field} must be a non-empty string`)
}

function texts(value: unknown, path: string): readonly string[] {
  if (value === undefined) return []
  if (Array.isArray(value) && value.every((entry) => typeof entry === 'string')) return value
  throw new Error(`models.json: ${path} must be an array of strings`)
}
