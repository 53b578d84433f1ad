import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'

import type { AdapterTarget } from './adapter-graph.ts'
import { type AdapterFeeds, AdapterStack, type RowAdapters } from './adapter-stack.ts'
import { type FittedAdapter, fitAdapter } from './fit-adapter.ts'
import type { PeftAdapter } from './peft-files.ts'

/** The model with inputs for adapters, loaded. */
interface AdaptedModel {
  readonly session: ModelSession
  readonly targets: readonly AdapterTarget[]
}

/** A run over rows, some of which have an adapter. */
export interface AdaptedRun extends AdapterFeeds {
  readonly session: ModelSession
}

/**
 * The second session of a model, which is loaded with the first adapter. Runs without adapters stay
 * on the first session, so that their cost and results are unchanged.
 */
export class AdapterRuns {
  readonly #runtime: Runtime
  readonly #open: () => Promise<AdaptedModel>
  #opening: Promise<AdaptedModel> | undefined
  #opened: { readonly session: ModelSession; readonly stack: AdapterStack } | undefined

  /** `open` throws `ModelLoadError` if the model supports no adapters. */
  constructor(runtime: Runtime, open: () => Promise<AdaptedModel>) {
    this.#runtime = runtime
    this.#open = open
  }

  /** Makes an adapter usable for sequences. Throws when it does not fit the model. */
  async fit(adapter: PeftAdapter): Promise<FittedAdapter> {
    this.#opening ??= this.#load()
    const { targets } = await this.#opening
    return fitAdapter(adapter, targets)
  }

  /** The session and inputs of a run over these rows; undefined when all use the base model. */
  arrange(rows: RowAdapters): AdaptedRun | undefined {
    if (rows.every((adapter) => adapter === undefined)) return undefined
    if (this.#opened === undefined) throw new Error('a row has an adapter that was never fitted')
    const { session, stack } = this.#opened
    return { session, ...stack.arrange(rows) }
  }

  async close(): Promise<void> {
    const opened = await this.#opening?.catch(() => undefined)
    this.#opened?.stack.close()
    await opened?.session.close()
  }

  async #load(): Promise<AdaptedModel> {
    try {
      const { session, targets } = await this.#open()
      this.#opened = { session, stack: new AdapterStack(this.#runtime, targets) }
      return { session, targets }
    } catch (error) {
      // The failure is not cached: the next adapter tries again.
      this.#opening = undefined
      throw error
    }
  }
}
