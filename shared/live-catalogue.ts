import type { Redis } from 'ioredis'

import { type Catalogue, type CatalogueModel, parseCatalogue } from './catalogue.ts'
import type { Logger } from './logger.ts'
import type { QueueKeys } from './queue/keys.ts'

/** A model that an operator added: its entry as in `models.json`, the operator and the time. */
export interface AddedModel {
  readonly entry: { readonly id: string }
  readonly by: string
  readonly at: string
}

const READ_INTERVAL_MS = 1000

interface Source {
  readonly redis: Redis
  readonly keys: Pick<QueueKeys, 'addedModels'>
  readonly log: Logger
}

/**
 * The models of `models.json` and those that operators add while the installation runs. All
 * processes read the added ones from Redis once a second. Names of `models.json` win.
 */
export class LiveCatalogue implements Catalogue {
  readonly #base: Catalogue
  readonly #source: Source
  readonly #listeners: (() => void)[] = []
  #added: readonly CatalogueModel[] = []
  #readText = ''
  #timer: NodeJS.Timeout | undefined

  constructor(base: Catalogue, source: Source) {
    this.#base = base
    this.#source = source
  }

  get models(): readonly CatalogueModel[] {
    return [...this.#base.models, ...this.#added]
  }

  find(idOrAlias: string): CatalogueModel | undefined {
    return (
      this.#base.find(idOrAlias) ??
      this.#added.find(({ id, aliases }) => id === idOrAlias || aliases.includes(idOrAlias))
    )
  }

  /** Whether `models.json` names the model. */
  isListed(id: string): boolean {
    return this.#base.find(id) !== undefined
  }

  /** Calls a function after every change of the added models. */
  onChange(listener: () => void): void {
    this.#listeners.push(listener)
  }

  /** Reads the added models, now and once a second until `close`. */
  async open(): Promise<this> {
    await this.read()
    this.#timer = setInterval(() => {
      this.read().catch((error: Error) => {
        // Redis is unreachable: the models of the last read stay.
        this.#source.log.debug({ operation: 'catalogue.read', reason: error.message }, 'redis')
      })
    }, READ_INTERVAL_MS)
    this.#timer.unref()
    return this
  }

  close(): void {
    clearInterval(this.#timer)
  }

  /** Reads the added models once. */
  async read(): Promise<void> {
    const { redis, keys } = this.#source
    const records = Object.entries(await redis.hgetall(keys.addedModels)).toSorted()
    const text = JSON.stringify(records)
    if (text === this.#readText) return
    this.#readText = text
    this.#added = records.flatMap(([id, record]) => this.#parse(id, record))
    for (const listener of this.#listeners) listener()
  }

  #parse(id: string, record: string): readonly CatalogueModel[] {
    try {
      const { entry } = JSON.parse(record) as AddedModel
      const { models } = parseCatalogue({ models: [entry] })
      return models.filter(({ id: own }) => !this.isListed(own))
    } catch (error) {
      // Another release may have written the entry.
      const { message: reason } = error as Error
      const fields = { operation: 'catalogue.read', modelId: id, reason }
      this.#source.log.warn(fields, 'an added model is ignored')
      return []
    }
  }
}
