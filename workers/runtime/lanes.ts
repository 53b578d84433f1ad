import { availableParallelism } from 'node:os'

import { modelFileBytes } from './model-file-bytes.ts'
import type { Runtime } from './runtime.ts'
import type { SessionOptions } from './session-options.ts'
import type { ModelSession } from './session.ts'

/** Batches side by side, each on its share of the cores. */
const LANES = 2
/** From here on a larger batch on a part of the cores gains nothing. */
const SHARED_BATCH_TOKENS = 640
/** A model is held a second time only when it is small. */
const TWICE_BYTES_MAX = 128 * 1024 * 1024

/**
 * The sessions of one model whose runs do not need each other. A run that is alone gets all cores.
 * When there are several, each gets a part of them: the threads of one small run wait for each other
 * at every operator, which two runs side by side do not.
 */
export interface SessionLanes {
  readonly lanes: number
  readonly sharedBatchTokens: number | undefined
  /** Of all cores; its inputs and outputs are those of the other. */
  readonly wide: ModelSession
  /** The session for a batch. */
  choose(isAlone: boolean): ModelSession
  close(): Promise<void>
}

/** What a model of so many bytes takes once both of its sessions are loaded. */
export function bytesInLanes(bytes: number): number {
  return bytes <= TWICE_BYTES_MAX ? 2 * bytes : bytes
}

/** Loads a model; a second session for parts of the cores is loaded once it is of use. */
export async function openLanes(
  runtime: Runtime,
  file: string,
  options: SessionOptions & { readonly lanes?: number | undefined },
): Promise<SessionLanes> {
  const { lanes: lanesWanted = LANES, ...sessionOptions } = options
  const threads = sessionOptions.intraOpThreads || availableParallelism()
  const wide = await runtime.load(file, sessionOptions)
  const lanes = (await canDivide(file, threads, sessionOptions)) ? lanesWanted : 1
  let narrow: ModelSession | undefined
  let loading: Promise<void> | undefined
  const loadNarrow = async (): Promise<void> => {
    const intraOpThreads = Math.floor(threads / lanes)
    // Without it the other serves both lanes.
    narrow = await runtime.load(file, { ...sessionOptions, intraOpThreads }).catch(() => undefined)
  }
  return {
    lanes,
    sharedBatchTokens: lanes > 1 ? SHARED_BATCH_TOKENS : undefined,
    wide,
    choose(isAlone) {
      if (isAlone || lanes === 1) return wide
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
  if (threads < LANES || options.executionProvider === 'cuda') return false
  return (await modelFileBytes([file])) <= TWICE_BYTES_MAX
}
