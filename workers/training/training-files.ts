import { createHash } from 'node:crypto'
import { createInterface } from 'node:readline'

import type {
  TrainingExample,
  TrainingResult,
  TrainingStatistics,
} from '#shared/contracts/training.ts'
import { failure, ServiceError } from '#shared/errors.ts'
import { type ObjectStore, readObject } from '#shared/storage/object-store.ts'
import { writePeftAdapter } from '#workers/adapters/peft-files.ts'
import type { TextModel } from '#workers/text/text-model.ts'

import { numTargets } from './batches.ts'
import { type TokenizedExample, tokenizeExample } from './examples.ts'
import type { MatrixLayout } from './matrices.ts'
import { readState, type TrainingState, writeState } from './training-state.ts'

const FILE_BYTES_MAX = 512 << 20
/** Held in memory as tokens, some ten bytes each. */
const TOKENS_MAX = 20_000_000
const STATE_BYTES_MAX = 8 * 1024 ** 3

/** Examples as tokens, with what they count. */
interface TokenizedFile {
  readonly examples: readonly TokenizedExample[]
  readonly statistics: TrainingStatistics
  readonly digest: string
}

/** Reads and tokenizes JSON lines. Examples without a target after truncation are skipped. */
export async function readExamples(
  storage: ObjectStore,
  key: string,
  {
    text,
    tokensMax,
    signal,
    yieldNow,
  }: {
    readonly text: TextModel
    readonly tokensMax: number
    readonly signal: AbortSignal
    readonly yieldNow: () => Promise<void>
  },
): Promise<TokenizedFile> {
  const { body, totalBytes } = await storage.get(key)
  if (totalBytes > FILE_BYTES_MAX) {
    body.destroy()
    throw tooLarge(`${totalBytes} bytes, more than ${FILE_BYTES_MAX}`)
  }
  const examples: TokenizedExample[] = []
  const digest = createHash('sha256')
  let [line, tokens, truncatedExamples] = [0, 0, 0]
  for await (const json of createInterface({ input: body })) {
    line += 1
    if (json.trim() === '') continue
    // Lines that were read together follow each other without a turn of the event loop.
    await yieldNow()
    signal.throwIfAborted()
    digest.update(json)
    const found = await tokenizeExample(text, parse(json, line), { line, tokensMax })
    tokens += found.example.tokenIds.length
    if (tokens > TOKENS_MAX) throw tooLarge(`more than ${TOKENS_MAX} tokens`)
    truncatedExamples += found.isTruncated ? 1 : 0
    if (numTargets(found.example) > 0) examples.push(found.example)
  }
  if (examples.length === 0) {
    throw failure.invalidRequest('The training file has no token to learn from.', {
      param: 'training_file',
      code: 'no_training_tokens',
    })
  }
  const statistics = { examples: examples.length, tokens, truncatedExamples }
  return { examples, statistics, digest: digest.digest('hex') }
}

function tooLarge(what: string): Error {
  return failure.invalidRequest(`The training file has ${what}.`, {
    param: 'training_file',
    code: 'training_file_too_large',
  })
}

/** The API has validated every line; this error is for files from another source. */
function parse(json: string, line: number): TrainingExample {
  try {
    const example = JSON.parse(json) as TrainingExample
    const isChat = 'messages' in example && Array.isArray(example.messages)
    if (isChat || ('prompt' in example && typeof example.prompt === 'string')) return example
  } catch {
    // The same answer as for JSON of another shape.
  }
  throw failure.invalidRequest(`Line ${line} of the training file is not an example.`, {
    param: 'training_file',
    code: 'invalid_training_file',
  })
}

/** Stored states and adapters of one training. */
export class TrainingFiles {
  readonly #storage: ObjectStore
  readonly #prefix: string

  constructor(storage: ObjectStore, prefix: string) {
    this.#storage = storage
    this.#prefix = prefix
  }

  /** The stored state; undefined when there is none of this training. */
  async findState(fingerprint: string, size: number): Promise<TrainingState | undefined> {
    try {
      const object = await readObject(this.#storage, this.#stateKey, STATE_BYTES_MAX)
      return readState(object, { fingerprint, size })
    } catch (error) {
      if (error instanceof ServiceError && error.kind === 'notFound') return undefined
      throw error
    }
  }

  async putState(state: TrainingState, fingerprint: string): Promise<void> {
    await this.#storage.put(this.#stateKey, writeState(state, fingerprint))
  }

  /** The state is not needed when the adapter is stored. */
  async deleteState(): Promise<void> {
    await this.#storage.delete(this.#stateKey)
  }

  /** Stores the adapter at a step, or the final one. */
  async putAdapter(
    elements: Float32Array,
    adapter: {
      readonly step: number | 'last'
      readonly layout: MatrixLayout
      readonly rank: number
      readonly alpha: number
      readonly baseModel: string
    },
  ): Promise<TrainingResult['adapter']> {
    const { step, layout, ...settings } = adapter
    const prefix = `${this.#prefix}/${step === 'last' ? 'adapter' : `checkpoints/${step}`}`
    const files = writePeftAdapter({ ...settings, modules: layout.modules(elements) })
    for (const [name, content] of Object.entries(files)) {
      await this.#storage.put(`${prefix}/${name}`, content)
    }
    const weights = files['adapter_model.safetensors']
    const sha256 = createHash('sha256').update(weights).digest('hex')
    return { prefix, bytes: weights.length, sha256 }
  }

  get #stateKey(): string {
    return `${this.#prefix}/state`
  }
}
