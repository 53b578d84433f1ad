import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'

import { BatchingWindow } from './batching-window.ts'
import { openLogMel, type MelConfig } from './mel.ts'
import type { WindowStates } from './whisper-decoder.ts'
import { openWhisperEncoder, type WhisperEncoderOptions } from './whisper-encoder.ts'

/** At most one window of samples to hidden states of the encoder. */
export interface WindowEncoder {
  encode(samples: Float32Array, signal: AbortSignal): Promise<WindowStates>
  close(): Promise<void>
}

/** Options of features and encoder. */
interface WindowEncoderOptions extends Omit<WhisperEncoderOptions, 'melBins'> {
  /** Windows that start together end together, so that they can be decoded in one run. */
  readonly gathers: boolean
}

/** Opens features and encoder. */
export async function openWindowEncoder(
  config: MelConfig,
  options: WindowEncoderOptions,
): Promise<WindowEncoder> {
  const encoder = await openWhisperEncoder({ ...options, melBins: config.melBins })
  return closeOnFailure(encoder, async () => {
    const mel = await openLogMel(options.runtime, config)
    const window = new BatchingWindow()
    const encode = async (samples: Float32Array, signal: AbortSignal): Promise<WindowStates> =>
      encoder.encode(await mel.extract(samples), signal)
    return {
      encode: (samples, signal) =>
        options.gathers ? window.join(encode(samples, signal)) : encode(samples, signal),
      async close() {
        await Promise.all([mel.close(), encoder.close()])
      },
    }
  })
}
