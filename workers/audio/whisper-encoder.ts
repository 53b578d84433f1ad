import { Batcher } from '#workers/embedding/batcher.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'
import { openSessionPool } from '#workers/runtime/session-pool.ts'
import { allocateElements, type ElementType } from '#workers/tensor/element-type.ts'

import { statesOfRows, type WindowStates } from './speech-decoder.ts'

/** The encoder: log-mel features of windows to hidden states. */
interface WhisperEncoder {
  /** Windows that are requested at the same time share a run. */
  encode(features: Float32Array, signal: AbortSignal): Promise<WindowStates>
  close(): Promise<void>
}

const ROWS_MAX = 4

/** Options of the encoder. */
export interface WhisperEncoderOptions {
  readonly runtime: Runtime
  readonly file: string
  /** The precision that the decoder requires. */
  readonly stateType: ElementType
  readonly melBins: number
  /** Whether windows of one run would change each other's states. */
  readonly isRowCoupled: boolean
  readonly session?: SessionOptions
}

/** Loads the encoder. */
export async function openWhisperEncoder({
  runtime,
  file,
  stateType,
  melBins,
  isRowCoupled,
  session: options = {},
}: WhisperEncoderOptions): Promise<WhisperEncoder> {
  const sessions = await openSessionPool(runtime, file, options)
  const type = sessions.wide.inputs.find(({ name }) => name === 'input_features')?.type ?? 'float32'

  async function encodeAll(
    windows: readonly Float32Array[],
    isAlone: boolean,
  ): Promise<readonly WindowStates[]> {
    const session = sessions.choose(isAlone)
    const size = windows[0]?.length ?? 0
    const joined = allocateElements(type, size * windows.length) as Float32Array
    for (const [row, features] of windows.entries()) joined.set(features, row * size)
    const feed = runtime.tensor(type, joined, [windows.length, melBins, size / melBins])
    try {
      const { last_hidden_state: states } = await session.run(
        { input_features: feed },
        { last_hidden_state: null },
      )
      const rows = statesOfRows(states, stateType)
      states.dispose()
      return rows
    } finally {
      feed.dispose()
    }
  }

  const rowsMax = isRowCoupled ? 1 : ROWS_MAX
  const batcher = new Batcher<Float32Array, WindowStates>({
    maxBatchTokens: rowsMax,
    maxBatchSize: rowsMax,
    poolSize: sessions.poolSize,
    lengthOf: () => 1,
    run: encodeAll,
  })
  return {
    encode: (features, signal) => batcher.submit(features, signal),
    close: () => sessions.close(),
  }
}
