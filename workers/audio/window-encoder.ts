import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'

import { type MelConfig, openLogMel } from './mel.ts'
import type { WindowStates } from './speech-decoder.ts'
import { openWhisperEncoder, type WhisperEncoderOptions } from './whisper-encoder.ts'

/** Encodes at most one window of samples to hidden states. */
export interface WindowEncoder {
  encode(samples: Float32Array, signal: AbortSignal): Promise<WindowStates>
  close(): Promise<void>
}

/** Options of features and encoder. */
interface WindowEncoderOptions extends Omit<WhisperEncoderOptions, 'melBins'> {
  /** Whether windows that start together also end together, so that one run can decode them. */
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

/**
 * A batching window for work that is prepared at the same time: a decoder run takes hardly longer
 * for four windows than for one, so a window waits for those whose preparation has already started.
 */
export class BatchingWindow {
  readonly #pending = new Set<Promise<unknown>>()

  /** Runs the work; resolves once all work that started before its end has ended too. */
  async join<Value>(work: Promise<Value>): Promise<Value> {
    this.#pending.add(work)
    try {
      await work
    } finally {
      this.#pending.delete(work)
    }
    await Promise.allSettled(this.#pending)
    return work
  }
}
