import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'

import { Gathering } from './gathering.ts'
import { openLogMel, type MelConfig } from './mel.ts'
import type { WindowStates } from './whisper-decoder.ts'
import { openWhisperEncoder, type WhisperEncoderOptions } from './whisper-encoder.ts'

/** At most one window of samples to what the decoder attends to. */
export interface WindowEncoder {
  /** Windows of the same time end at the same time, so that they are decoded together. */
  encode(samples: Float32Array, signal: AbortSignal): Promise<WindowStates>
  close(): Promise<void>
}

/** Opens features and encoder. */
export async function openWindowEncoder(
  config: MelConfig,
  options: Omit<WhisperEncoderOptions, 'melBins'>,
): Promise<WindowEncoder> {
  const encoder = await openWhisperEncoder({ ...options, melBins: config.melBins })
  return closeOnFailure(encoder, async () => {
    const mel = await openLogMel(options.runtime, config)
    const gathering = new Gathering()
    const encode = async (samples: Float32Array, signal: AbortSignal): Promise<WindowStates> =>
      encoder.encode(await mel.extract(samples), signal)
    return {
      encode: (samples, signal) => gathering.join(encode(samples, signal)),
      async close() {
        await Promise.all([mel.close(), encoder.close()])
      },
    }
  })
}
