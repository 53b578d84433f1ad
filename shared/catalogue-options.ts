import type { ModelOptions } from './catalogue.ts'
import type { QueueKind } from './contracts/queues.ts'

/** Whose engine reads an option: rerankers are of the kind `embedding`, but read fewer. */
export type OptionReader = QueueKind | 'rerank'

interface Rule {
  /** Which kinds of models it changes; all when absent. */
  readonly readers?: readonly OptionReader[]
  /** What it must be, for the message. */
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
const text = { must: 'must be a string', holds: (value: unknown) => typeof value === 'string' }

const RULES: Readonly<Record<keyof ModelOptions, Rule>> = {
  slots: count(1, 4096),
  maxContextTokens: {
    readers: ['completion', 'embedding', 'rerank'],
    ...count(1, 10_000_000),
  },
  maxBatchTokens: { readers: ['embedding', 'rerank'], ...count(1, 10_000_000) },
  onnxFile: {
    readers: ['completion', 'embedding', 'rerank', 'audio'],
    must: 'must be the name of a file without its folder, such as "model_quantized"',
    holds: (value) => typeof value === 'string' && /^[\w+-][\w.+-]{0,199}$/.test(value),
  },
  executionProvider: choice('cpu', 'cuda'),
  intraOpThreads: count(0, 256),
  queryPrefix: { readers: ['embedding'], ...text },
  passagePrefix: { readers: ['embedding'], ...text },
  tokenIdVocabulary: { readers: ['embedding'], ...choice('native', 'reject') },
  // What a request may ask for bounds what is drawn without being asked.
  steps: { readers: ['image'], ...count(1, 150) },
  guidance: {
    readers: ['image'],
    must: 'must be a number from 0 to 30',
    holds: within(0, 30),
  },
  sharedPrefixCache: {
    readers: ['completion'],
    must: 'must be true or false',
    holds: (value) => typeof value === 'boolean',
  },
  maxQueueDepth: count(1, Number.MAX_SAFE_INTEGER),
}

/** Checks the options of an entry of `models.json`. Throws an `Error` naming the wrong one. */
export function parseOptions(
  record: Record<string, unknown>,
  { kind, path }: { readonly kind: OptionReader; readonly path: string },
): ModelOptions {
  for (const [name, value] of Object.entries(record)) {
    const rule = Object.hasOwn(RULES, name) ? RULES[name as keyof ModelOptions] : undefined
    if (rule === undefined) {
      const known = Object.keys(RULES).join(', ')
      throw new Error(`models.json: ${path}.${name} is not a known option; known: ${known}`)
    }
    if (rule.readers?.includes(kind) === false) {
      throw new Error(
        `models.json: ${path}.${name} changes nothing for ${MODELS[kind]}, only for ${namesOf(rule.readers)}`,
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
  image: 'models of pictures',
  audio: 'models of speech',
}

function namesOf(readers: readonly OptionReader[]): string {
  return readers.map((reader) => MODELS[reader]).join(', ')
}
