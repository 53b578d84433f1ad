import { stat } from 'node:fs/promises'
import { availableParallelism } from 'node:os'

import type { ModelBytes, Runtime } from './runtime.ts'
import type { ModelSession } from './session.ts'
import type { SessionOptions } from './session-options.ts'

/** Batches in parallel, each on its share of the cores. */
const POOL_SIZE = 2
/** Above this size a batch gains nothing from a share of the cores. */
const SHARED_BATCH_TOKENS = 640
/** Only small models are loaded twice. */
const TWICE_BYTES_MAX = 128 * 1024 * 1024

/**
 * Several sessions of one model for independent runs. A run without others gets all cores;
 * otherwise each run gets a share of them, because the threads of one small run wait for each other
 * at every operator and two parallel runs do not.
 */
export interface SessionPool {
  readonly poolSize: number
  readonly sharedBatchTokens: number | undefined
  /** The session on all cores; the other session has the same inputs and outputs. */
  readonly wide: ModelSession
  /** Chooses the session for a batch. */
  choose(isAlone: boolean): ModelSession
  close(): Promise<void>
}

/** The bytes of a model once both of its sessions are loaded. */
export function bytesOfPool(bytes: number): number {
  return bytes <= TWICE_BYTES_MAX ? 2 * bytes : bytes
}

/** Loads a model; the second session, on a share of the cores, is loaded on first use. */
export async function openSessionPool(
  runtime: Runtime,
  model: string | ModelBytes,
  options: SessionOptions & { readonly poolSize?: number | undefined },
): Promise<SessionPool> {
  const { poolSize: poolSizeWanted = POOL_SIZE, ...sessionOptions } = options
  const threads = sessionOptions.intraOpThreads || availableParallelism()
  const file = typeof model === 'string' ? model : model.name
  const wide = await runtime.load(model, sessionOptions)
  const poolSize = (await canDivide(file, threads, sessionOptions)) ? poolSizeWanted : 1
  let narrow: ModelSession | undefined
  let loading: Promise<void> | undefined
  const loadNarrow = async (): Promise<void> => {
    const intraOpThreads = Math.floor(threads / poolSize)
    // When it cannot be loaded, the wide session serves all batches.
    narrow = await runtime.load(model, { ...sessionOptions, intraOpThreads }).catch(() => undefined)
  }
  return {
    poolSize,
    sharedBatchTokens: poolSize > 1 ? SHARED_BATCH_TOKENS : undefined,
    wide,
    choose(isAlone) {
      if (isAlone || poolSize === 1) return wide
      loading ??= loadNarrow()
      return narrow ?? wide
    },
    async close() {
      await loading
      await Promise.all([wide.close(), narrow?.close()])
    },
  }
}

async function canDivide(file: string, threads: number, options: SessionOptions): Promise<boolean> {
  if (threads < POOL_SIZE || options.executionProvider === 'cuda') return false
  return (await modelFileBytes([file])) <= TWICE_BYTES_MAX
}

/** Bytes of model files, including the external data of large exports. */
export async function modelFileBytes(files: readonly string[]): Promise<number> {
  const sizes = await Promise.all(
    files
      .flatMap((file) => [file, `${file}_data`, `${file}.data`])
      .map((path) =>
        stat(path).then(
          ({ size }) => size,
          () => 0,
        ),
      ),
  )
  return sizes.reduce((sum, size) => sum + size, 0)
}
