import { findModelFile } from '#workers/models/find-model-file.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'

import { SAMPLE_RATE } from './decode.ts'

/** Samples of a frame. Its probability also depends on the samples before it. */
export const FRAME_SAMPLES = 512
const CONTEXT_SAMPLES = 64
const STATE_DIMS = [2, 1, 128]

/** A model that detects speech. */
export interface VoiceActivityModel {
  readonly modelFile: string
  /** Begins a clip. */
  begin(): VoiceActivity
  close(): Promise<void>
}

/** The probabilities of one clip, frame by frame. */
export interface VoiceActivity {
  /** The probability of speech in a frame; only the last one may be shorter. */
  probabilityOf(frame: Float32Array, signal: AbortSignal): Promise<number>
  dispose(): void
}

/** Loads a model with the inputs and outputs of Silero VAD, version 5. Throws `ModelLoadError`. */
export async function openVoiceActivity(
  runtime: Runtime,
  folder: string,
): Promise<VoiceActivityModel> {
  const modelFile = await findModelFile(folder, undefined)
  const session = await runtime.load(modelFile, { intraOpThreads: 1 })
  const missing = [
    ...['input', 'state', 'sr'].filter((name) => !session.inputs.some((one) => one.name === name)),
    ...['output', 'stateN'].filter((name) => !session.outputs.some((one) => one.name === name)),
  ]
  if (missing.length > 0) {
    await session.close()
    const names = missing.join(', ')
    throw new ModelLoadError(modelFile, `not a Silero VAD of version 5: there is no ${names}`)
  }
  return {
    modelFile,
    begin: () => beginClip(runtime, session),
    close: () => session.close(),
  }
}

function beginClip(runtime: Runtime, session: ModelSession): VoiceActivity {
  let state: Tensor = runtime.zeros('float32', STATE_DIMS)
  const rate = runtime.tensor('int64', BigInt64Array.of(BigInt(SAMPLE_RATE)), [])
  let context = new Float32Array(CONTEXT_SAMPLES)
  return {
    async probabilityOf(frame, signal) {
      const row = new Float32Array(CONTEXT_SAMPLES + FRAME_SAMPLES)
      row.set(context)
      row.set(frame, CONTEXT_SAMPLES)
      context = row.slice(-CONTEXT_SAMPLES)
      const input = runtime.tensor('float32', row, [1, row.length])
      try {
        const feeds = { input, state, sr: rate }
        const { output, stateN } = await session.run(
          feeds,
          { output: null, stateN: null },
          { signal },
        )
        state.dispose()
        state = stateN
        const probability = output.data[0] as number
        output.dispose()
        return probability
      } finally {
        input.dispose()
      }
    },
    dispose() {
      state.dispose()
      rate.dispose()
    },
  }
}
