import { Batcher } from '#workers/embedding/batcher.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'
import { openSessionPool } from '#workers/runtime/session-pool.ts'
import { allocateElements, type ElementType } from '#workers/tensor/element-type.ts'

import type { WindowStates } from './speech-decoder.ts'

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
  /** Windows per run. */
  readonly rowsMax?: number
  readonly session?: SessionOptions
}

/** Loads the encoder. */
export async function openWhisperEncoder({
  runtime,
  file,
  stateType,
  melBins,
  rowsMax = ROWS_MAX,
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
      const length = states.data.length / windows.length
      const rows = windows.map((_window, row) => {
        const data = allocateElements(stateType, length) as Float32Array
        data.set(states.data.subarray(row * length, (row + 1) * length) as Float32Array)
        return { data, positions: states.dims[1] as number }
      })
      states.dispose()
      return rows
    } finally {
      feed.dispose()
    }
  }

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
