import { join } from 'node:path'

import { isRecord } from '#shared/json.ts'
import { countIn, findJson } from '#workers/models/folder-json.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

import { findModules, isMultiVectorConfig, type SentenceModule } from './sentence-head.ts'

/** The settings of a model for texts of one role. */
interface RoleSettings {
  /** The token before texts of this role. */
  readonly marker: string | undefined
  /** The prefix of texts. It begins with the marker if that is an added token of the tokenizer. */
  readonly prompt: string
  /** The length in tokens, including all markers. */
  readonly tokensMax: number | undefined
}

/** Tokens after a query whose vectors are compared as well (query augmentation in the paper). */
interface ExpansionSettings {
  /** The mask token if absent. */
  readonly token: string | undefined
  /** Shorter queries are padded to this many tokens. */
  readonly length: number
  /** Whether longer queries are cut to it. */
  readonly isFixed: boolean
  /** Whether the tokens of the query attend to those after it. */
  readonly isAttended: boolean
}

/** Roles of texts, by the names used here. */
export type MultiVectorRole = 'query' | 'passage'

/** How a multi-vector model reads texts, according to its files. */
export interface MultiVectorSettings extends Readonly<Record<MultiVectorRole, RoleSettings>> {
  readonly expansion: ExpansionSettings | undefined
  /** Tokens, such as punctuation, that get no vector. */
  readonly skiplist: readonly string[]
  readonly skippedIn: readonly MultiVectorRole[]
  readonly isNormalized: boolean
  /** The source of the layers after the graph: modules, or the weights of the whole model. */
  readonly layers: readonly SentenceModule[] | 'checkpoint'
  /** The dimensions of the vectors, if a file states them. */
  readonly dimensions: number | undefined
}

type Json = Readonly<Record<string, unknown>>

const LENGTH_MAX = 10_000_000
const SKIPLIST_MAX = 10_000
const EXPANSION_LENGTH = 32 // the default of ColBERT and PyLate
const PUNCTUATION = [...'!"#$%&\'()*+,-./:;<=>?@[\\]^_`{|}~']

/**
 * Reads the settings of PyLate, of sentence-transformers, or of ColBERT (`artifact.metadata`);
 * undefined when the folder has none of them. Throws `ModelLoadError`.
 */
export async function readMultiVectorSettings(
  folder: string,
): Promise<MultiVectorSettings | undefined> {
  const config = (await findJson(folder, 'config_sentence_transformers.json')) ?? {}
  if (isMultiVectorConfig(config)) return ofModules(folder, config)
  const metadata = await findJson(folder, 'artifact.metadata')
  if (metadata !== undefined) return ofColbert(folder, metadata)
  const { architectures } = (await findJson(folder, 'config.json')) ?? {}
  return [architectures].flat().includes('HF_ColBERT') ? ofColbert(folder, {}) : undefined
}

/**
 * The settings of a graph that computes vectors like FlagEmbedding: all tokens of all texts alike.
 */
export const PLAIN_SETTINGS: MultiVectorSettings = {
  query: { marker: undefined, prompt: '', tokensMax: undefined },
  passage: { marker: undefined, prompt: '', tokensMax: undefined },
  expansion: undefined,
  skiplist: [],
  skippedIn: [],
  isNormalized: true,
  layers: [],
  dimensions: undefined,
}

async function ofModules(folder: string, config: Json): Promise<MultiVectorSettings> {
  const modules = (await findModules(folder)) ?? []
  const mask = modules.find(({ kind }) => kind === 'MultiVectorMask')
  const unknown = modules.find(({ kind }) => !MODULES.includes(kind))
  if (unknown !== undefined) {
    throw new ModelLoadError(folder, `the module ${unknown.kind} is not supported`)
  }
  // PyLate masks and normalizes without separate modules.
  const isPylate = mask === undefined
  const transformer = (await findJson(folder, 'sentence_bert_config.json')) ?? {}
  const words = isPylate
    ? (config.skiplist_words ?? PUNCTUATION)
    : await readMask(folder, mask.path)
  return {
    query: {
      ...roleOf(config, 'query'),
      tokensMax: lengthIn(folder, 'query_length', transformer, config),
    },
    passage: {
      ...roleOf(config, 'document'),
      tokensMax: lengthIn(folder, 'document_length', transformer, config),
    },
    expansion: expansionOf(folder, transformer, config),
    ...skiplistOf(folder, words),
    isNormalized: isPylate || modules.some(({ kind }) => kind === 'Normalize'),
    layers: modules.filter(({ kind }) => kind === 'Dense'),
    dimensions: undefined,
  }
}

const MODULES = ['Dense', 'MultiVectorMask', 'Normalize', 'Dropout']

function roleOf({ prompts, ...config }: Json, role: 'query' | 'document') {
  const prompt = isRecord(prompts) ? prompts[role] : undefined
  const text = typeof prompt === 'string' ? prompt : ''
  const { [`${role}_prefix`]: prefix } = config
  const marker = typeof prefix === 'string' && prefix !== '' ? prefix : undefined
  const isRepeated = marker !== undefined && text.startsWith(marker)
  return { marker, prompt: isRepeated ? text.slice(marker.length) : text }
}

async function readMask(folder: string, path: string): Promise<unknown> {
  const mask = (await findJson(folder, join(path, 'config.json'))) ?? {}
  if (Array.isArray(mask.keep_only_token_ids) && mask.keep_only_token_ids.length > 0) {
    throw new ModelLoadError(folder, `${path}: keep_only_token_ids is not supported`)
  }
  return mask
}

/** Reads a list of words for documents, or a module that also names the roles. */
function skiplistOf(
  folder: string,
  given: unknown,
): Pick<MultiVectorSettings, 'skiplist' | 'skippedIn'> {
  const { skiplist_words: words = [], skiplist_tasks: tasks = ['document'] } = isRecord(given)
    ? given
    : { skiplist_words: given }
  if (!isTexts(words ?? [])) {
    throw new ModelLoadError(
      folder,
      `skiplist_words must be a list of at most ${SKIPLIST_MAX} texts`,
    )
  }
  const roles = [tasks ?? 'document'].flat()
  return {
    skiplist: (words ?? []) as readonly string[],
    skippedIn: (['query', 'passage'] as const).filter((role) =>
      roles.includes(role === 'passage' ? 'document' : role),
    ),
  }
}

function isTexts(value: unknown): value is readonly string[] {
  const isList = Array.isArray(value) && value.length <= SKIPLIST_MAX
  return isList && value.every((word) => typeof word === 'string')
}

/** The expansion of sentence-transformers, else the flags of PyLate, which expands by default. */
function expansionOf(
  folder: string,
  transformer: Json,
  config: Json,
): ExpansionSettings | undefined {
  const own = [transformer, config].find((file) => 'query_expansion' in file)?.query_expansion
  if (isRecord(own)) {
    const { strategy, attend = false, token } = own
    const length = lengthIn(folder, 'length', own)
    if ((strategy !== 'fixed' && strategy !== 'min') || length === undefined) {
      throw new ModelLoadError(
        folder,
        'query_expansion needs a length, and "fixed" or "min" as its strategy',
      )
    }
    return {
      token: typeof token === 'string' ? token : undefined,
      length,
      isFixed: strategy === 'fixed',
      isAttended: attend === true,
    }
  }
  if (own === null || config.do_query_expansion === false) return undefined
  if (config.model_type === 'MultiVectorEncoder') return undefined
  return {
    token: undefined,
    length: lengthIn(folder, 'query_length', transformer, config) ?? EXPANSION_LENGTH,
    isFixed: true,
    isAttended: (config.attend_to_expansion_tokens ?? config.attend_to_mask_tokens) === true,
  }
}

/** Settings of an original ColBERT checkpoint, which always pads queries with masks. */
function ofColbert(folder: string, metadata: Json): MultiVectorSettings {
  const { query_token_id: query, doc_token_id: document, similarity } = metadata
  if (similarity !== undefined && similarity !== 'cosine') {
    throw new ModelLoadError(folder, `the similarity ${String(similarity)} is not supported`)
  }
  const length = lengthIn(folder, 'query_maxlen', metadata) ?? EXPANSION_LENGTH
  return {
    ...PLAIN_SETTINGS,
    query: {
      marker: typeof query === 'string' ? query : '[unused0]',
      prompt: '',
      tokensMax: length,
    },
    passage: {
      marker: typeof document === 'string' ? document : '[unused1]',
      prompt: '',
      tokensMax: lengthIn(folder, 'doc_maxlen', metadata),
    },
    expansion: {
      token: undefined,
      length,
      isFixed: true,
      isAttended: metadata.attend_to_mask_tokens === true,
    },
    ...skiplistOf(folder, metadata.mask_punctuation === false ? [] : PUNCTUATION),
    layers: 'checkpoint',
    dimensions: lengthIn(folder, 'dim', metadata),
  }
}

/** A length from the first file that states it; null means none. */
function lengthIn(folder: string, name: string, ...files: readonly Json[]): number | undefined {
  const value = files.map((file) => file[name] ?? undefined).find((found) => found !== undefined)
  if (value === undefined) return undefined
  return countIn(folder, { [name]: Number(value) }, name, { fallback: 0, max: LENGTH_MAX })
}
