import { join } from 'node:path'

import { isRecord } from '#shared/json.ts'
import { findJson, findJsonValue } from '#workers/models/folder-json.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

import { type DenseLayer, readDenseLayer } from './dense.ts'
import type { PoolingMode } from './pooling.ts'

/** The modules that reduce token vectors to one vector, as listed in `modules.json`. */
export interface SentenceHead {
  /** The vectors of several modes are concatenated. */
  readonly pooling: readonly PoolingMode[]
  readonly dense: readonly DenseLayer[]
  readonly isNormalized: boolean
  /** Whether the folder states the modules; otherwise the usual ones are assumed. */
  readonly isStated: boolean
  /** Why the head is not supported here. The graph may still contain all of it. */
  readonly problem: string | undefined
}

// In the order in which several modes are concatenated.
const POOLING_FLAGS: readonly (readonly [string, PoolingMode])[] = [
  ['pooling_mode_cls_token', 'cls'],
  ['pooling_mode_max_tokens', 'max'],
  ['pooling_mode_mean_tokens', 'mean'],
  ['pooling_mode_mean_sqrt_len_tokens', 'meanSqrtLength'],
  ['pooling_mode_weightedmean_tokens', 'weightedMean'],
  ['pooling_mode_lasttoken', 'lastToken'],
]
const POOLING_NAMES: ReadonlyMap<unknown, PoolingMode> = new Map<unknown, PoolingMode>([
  ['cls', 'cls'],
  ['max', 'max'],
  ['mean', 'mean'],
  ['mean_sqrt_len_tokens', 'meanSqrtLength'],
  ['weightedmean', 'weightedMean'],
  ['lasttoken', 'lastToken'],
])

/** Settings of a head that come from outside its folder. */
interface HeadSettings {
  /** The pooling mode that the catalogue names in place of the folder. */
  readonly pooling?: string | undefined
  /** The pooling mode for folders that name none. */
  readonly fallback?: PoolingMode
}

/** Reads the head of an encoder's folder in the layout of sentence-transformers, if it has one. */
export async function readSentenceHead(
  folder: string,
  { pooling: chosen, fallback = 'mean' }: HeadSettings = {},
): Promise<SentenceHead> {
  const modules = await findModules(folder)
  const settings = await findJson(folder, 'config_sentence_transformers.json')
  const steps = modules ?? [{ kind: 'Pooling', path: '1_Pooling' }]
  let pooling =
    chosen === undefined ? [fallback] : poolingOf('models.json', { pooling_mode: chosen })
  let isNormalized = modules === undefined
  let isStated = modules !== undefined || chosen !== undefined
  const dense: DenseLayer[] = []
  try {
    if (isMultiVectorConfig(settings ?? {})) throw new Error(MULTI_VECTOR)
    for (const { kind, path } of steps) {
      const found = await findJsonValue(folder, join(path, 'config.json'))
      const config = isRecord(found) ? found : undefined
      if (kind === 'Pooling') {
        if (config?.include_prompt === false && hasPrompts(settings ?? {})) {
          throw new Error(`${path}: include_prompt must be true for a model with prompts`)
        }
        if (config === undefined || chosen !== undefined) continue
        pooling = poolingOf(path, config)
        isStated = true
      } else if (kind === 'Dense') dense.push(await readDenseLayer(folder, path, config ?? {}))
      else if (kind === 'Normalize') isNormalized = true
      else if (kind !== 'Dropout') throw new Error(unsupported(kind))
    }
  } catch (error) {
    return { pooling, dense, isNormalized, isStated, problem: (error as Error).message }
  }
  return { pooling, dense, isNormalized, isStated, problem: undefined }
}

const MULTI_VECTOR =
  'a model of several vectors needs "capabilities": ["multi-vector"] in models.json'
/** Fields that PyLate adds to `config_sentence_transformers.json`. */
const MULTI_VECTOR_FIELDS = ['query_prefix', 'document_prefix', 'do_query_expansion']

/** Whether this is the configuration of a multi-vector model. */
export function isMultiVectorConfig(settings: Readonly<Record<string, unknown>>): boolean {
  const { model_type: type } = settings
  const isNamed = type === 'ColBERT' || type === 'MultiVectorEncoder'
  return isNamed || MULTI_VECTOR_FIELDS.some((name) => name in settings)
}

/** Whether `config_sentence_transformers.json` has a prompt that is not empty. */
function hasPrompts({ prompts }: Readonly<Record<string, unknown>>): boolean {
  return isRecord(prompts) && Object.values(prompts).some((prompt) => prompt !== '')
}

/** Modules of models that are not encoders of a single vector. */
const CAPABILITIES: ReadonlyMap<string, string> = new Map([['SpladePooling', 'sparse']])

function unsupported(kind: string): string {
  const capability = CAPABILITIES.get(kind)
  if (capability === undefined) return `the module ${kind} is not supported`
  return `the module ${kind} needs "capabilities": ["${capability}"] in models.json`
}

/** A module of sentence-transformers. */
export interface SentenceModule {
  readonly kind: string
  readonly path: string
}

const MODULES_MAX = 32

/** The modules after the first one, which is the graph; undefined without `modules.json`. */
export async function findModules(folder: string): Promise<readonly SentenceModule[] | undefined> {
  const modules = await findJsonValue(folder, 'modules.json')
  if (!Array.isArray(modules)) return undefined
  if (modules.length > MODULES_MAX) {
    throw new ModelLoadError(folder, `modules.json lists more than ${MODULES_MAX} modules`)
  }
  return modules
    .filter(isRecord)
    .slice(1)
    .map(({ type, path }) => ({
      kind: String(type).split('.').at(-1) as string,
      path: typeof path === 'string' ? path : '',
    }))
}

/** The modes by their flags, the older format, or by their names. */
function poolingOf(path: string, config: Record<string, unknown>): readonly PoolingMode[] {
  const flagged = POOLING_FLAGS.filter(([flag]) => config[flag] === true).map(([, mode]) => mode)
  const names = [config.pooling_mode ?? []].flat()
  if (names.length === 0) return flagged.length > 0 ? flagged : ['mean']
  return names.map((name) => {
    const mode = POOLING_NAMES.get(name)
    if (mode === undefined)
      throw new Error(`${path}: the pooling mode ${String(name)} is not known`)
    return mode
  })
}
