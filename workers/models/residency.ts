import { setTimeout as sleep } from 'node:timers/promises'

import type { CatalogueModel } from '#shared/catalogue.ts'
import { queueName } from '#shared/contracts/job.ts'
import { failure } from '#shared/errors.ts'
import type { Logger } from '#shared/logger.ts'

/** A model in memory. */
export interface ResidentModel {
  readonly bytes: number
  close(): Promise<void>
}

/** A model in use: it stays loaded until every lease is released. */
interface Lease<Model> {
  readonly model: Model
  release(): void
}

interface Resident<Model> {
  readonly loading: Promise<Model>
  model: Model | undefined
  leases: number
  usedAt: number
}

/** How models are opened, and how much memory they may take. */
interface ResidencyOptions<Model, Source> {
  /** 0 means no limit. */
  readonly bytesMax: number
  readonly open: (source: Source) => Promise<Model>
  readonly keyOf: (source: Source) => string
  /** The noun in messages and log entries. */
  readonly noun: 'model' | 'adapter'
  readonly log: Logger
}

const EVICT_CHECK_MS = 100

/** A model of the catalogue is opened once for each of its queues. */
export const MODEL_RESIDENCY = {
  keyOf: ({ kind, id }: Pick<CatalogueModel, 'kind' | 'id'>) => queueName(kind, id),
  noun: 'model',
} as const

/** Loaded models: opened once for all callers, the least recently used closed first. */
export class Residency<
  Model extends ResidentModel,
  Source extends { readonly id: string } = CatalogueModel,
> {
  readonly #options: ResidencyOptions<Model, Source>
  readonly #residents = new Map<string, Resident<Model>>()
  #useCounter = 0
  #isClosed = false

  constructor(options: ResidencyOptions<Model, Source>) {
    this.#options = options
  }

  /** Loads the model if necessary, and leases it. */
  async lease(model: Source): Promise<Lease<Model>> {
    const resident = this.#residents.get(this.#options.keyOf(model)) ?? this.#load(model)
    resident.leases += 1
    resident.usedAt = ++this.#useCounter
    let isHeld = true
    const release = (): void => {
      if (isHeld) resident.leases -= 1
      isHeld = false
    }
    try {
      return { model: await resident.loading, release }
    } catch (error) {
      release()
      throw error
    }
  }

  /** The model if it is in memory. */
  find(model: Source): Model | undefined {
    return this.#residents.get(this.#options.keyOf(model))?.model
  }

  /** Closes a model as soon as it is unused; the next lease opens it again. */
  async evict(model: Source): Promise<void> {
    const key = this.#options.keyOf(model)
    const resident = this.#residents.get(key)
    if (resident === undefined) return
    this.#residents.delete(key)
    const opened = await resident.loading.catch(() => undefined)
    while (resident.leases > 0) await sleep(EVICT_CHECK_MS)
    await opened?.close()
  }

  /** Closes every model, even leased ones: stop their users first. */
  async close(): Promise<void> {
    this.#isClosed = true
    const residents = [...this.#residents.values()]
    this.#residents.clear()
    await Promise.allSettled(residents.map(async ({ loading }) => (await loading).close()))
  }

  #load(model: Source): Resident<Model> {
    if (this.#isClosed) throw failure.overloaded('the worker is stopping')
    const resident: Resident<Model> = {
      loading: this.#open(model),
      model: undefined,
      leases: 0,
      usedAt: 0,
    }
    this.#residents.set(this.#options.keyOf(model), resident)
    resident.loading.then(
      (opened) => {
        resident.model = opened
      },
      () => {
        // The failure is not cached: the next lease tries again.
        if (this.#residents.get(this.#options.keyOf(model)) === resident)
          this.#residents.delete(this.#options.keyOf(model))
      },
    )
    return resident
  }

  async #open(model: Source): Promise<Model> {
    const startedAt = performance.now()
    const { noun, open } = this.#options
    const opened = await open(model)
    await this.#makeRoom(model, opened)
    this.#options.log.info(
      {
        operation: `${noun}.load`,
        [`${noun}Id`]: model.id,
        bytes: opened.bytes,
        loadMs: Math.round(performance.now() - startedAt),
      },
      `${noun} loaded`,
    )
    return opened
  }

  /** Evicts idle models until the new one fits, or refuses it. */
  async #makeRoom(model: Source, opened: Model): Promise<void> {
    const { bytesMax, noun, log } = this.#options
    if (bytesMax === 0) return
    while (this.#bytes() + opened.bytes > bytesMax) {
      const idle = [...this.#residents]
        .filter(([, resident]) => resident.model !== undefined && resident.leases === 0)
        .toSorted(([, a], [, b]) => a.usedAt - b.usedAt)[0]
      if (idle === undefined) {
        await opened.close()
        throw failure.overloaded(`there is no memory left for the ${noun} \`${model.id}\``)
      }
      const [key, resident] = idle
      this.#residents.delete(key)
      log.info({ operation: `${noun}.evict`, key }, `${noun} evicted`)
      await resident.model?.close()
    }
  }

  #bytes(): number {
    return [...this.#residents.values()].reduce((sum, { model }) => sum + (model?.bytes ?? 0), 0)
  }
}
