import type { AdapterReference } from '#shared/contracts/completion.ts'
import { CancelledError, failure, ServiceError } from '#shared/errors.ts'
import type { Logger } from '#shared/logger.ts'
import { ensureModel } from '#workers/models/fetcher.ts'
import { Residency, type ResidentModel } from '#workers/models/residency.ts'
import type { StoredOptions } from '#workers/models/stored-cache.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

import type { FittedAdapter } from './fit-adapter.ts'
import { ADAPTER_FILES, type PeftAdapter, readPeftAdapter } from './peft-files.ts'

/** An adapter that stays in memory until it is released. */
interface AdapterLease {
  readonly adapter: FittedAdapter
  release(): void
}

/** Loads the adapters of one model. */
export interface AdapterLibrary {
  /** Throws a `ServiceError` that names the adapter and its fault. */
  lease(reference: AdapterReference): Promise<AdapterLease>
}

interface LibraryOptions {
  /** Bytes of adapters in memory; those in use are never evicted. 0 means no limit. */
  readonly bytesMax: number
  readonly rankMax: number
  readonly fetchOptions: StoredOptions
  readonly fit: (adapter: PeftAdapter) => Promise<FittedAdapter>
  readonly log: Logger
}

interface ResidentAdapter extends ResidentModel {
  readonly adapter: FittedAdapter
}

const FILE_BYTES_MAX = 1 << 30

/** Adapters of one model: loaded on demand, the least recently used evicted first. */
export function openAdapterLibrary(options: LibraryOptions): AdapterLibrary {
  const { bytesMax, log } = options
  const residency = new Residency<ResidentAdapter, AdapterReference>({
    bytesMax,
    log,
    noun: 'adapter',
    keyOf: ({ id, source }) => `${id}\n${source}`,
    async open(reference) {
      const adapter = await loadAdapter(reference, options)
      return { adapter, bytes: adapter.bytes, close: async () => {} }
    },
  })
  return {
    async lease(reference) {
      const { model, release } = await residency.lease(reference)
      return { adapter: model.adapter, release }
    },
  }
}

/** The folder of an adapter's files, which are fetched if they are missing. */
function ensureAdapter({ id, source }: AdapterReference, options: StoredOptions): Promise<string> {
  return ensureModel({ id, source, options: {}, files: ADAPTER_FILES }, options)
}

async function loadAdapter(
  reference: AdapterReference,
  options: LibraryOptions,
): Promise<FittedAdapter> {
  const { bytesMax, rankMax, fetchOptions } = options
  try {
    const folder = await ensureAdapter(reference, fetchOptions)
    const limits = { rankMax, bytesMax: bytesMax === 0 ? FILE_BYTES_MAX : bytesMax }
    return await options.fit(await readPeftAdapter(folder, limits))
  } catch (error) {
    if (error instanceof ServiceError || error instanceof CancelledError) throw error
    throw failure.unprocessable(
      `The adapter \`${reference.id}\` cannot be used: ${reasonOf(error)}.`,
      { code: 'adapter_invalid', param: 'model', cause: error },
    )
  }
}

/** The reason of a failure, without paths of this machine. */
function reasonOf(error: unknown): string {
  const { message } = error as Error
  return error instanceof ModelLoadError ? message.slice(error.file.length + 2) : message
}
