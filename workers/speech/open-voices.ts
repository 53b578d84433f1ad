import { findModelFile } from '#workers/models/find-model-file.ts'
import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'

import { findKokoroInputs, openKokoro } from './kokoro.ts'
import { openPhonemizer } from './phonemes.ts'
import { findPiperConfig, openPiper } from './piper.ts'
import { openVits } from './vits.ts'
import type { Voices } from './voices.ts'

/** Options of a speech synthesis model. */
interface VoicesOptions {
  readonly runtime: Runtime
  readonly folder: string
  readonly onnxFile?: string
  readonly session?: SessionOptions
  /** Converts letters to phonemes, for models that read them. */
  readonly phonemizer?: typeof openPhonemizer
}

/**
 * Loads a speech synthesis model: Piper, Kokoro or VITS, distinguished by their inputs. Throws
 * `ModelLoadError`.
 */
export async function openVoices({
  runtime,
  folder,
  onnxFile,
  session: options = {},
  phonemizer = openPhonemizer,
}: VoicesOptions): Promise<Voices> {
  const file = await findModelFile(folder, onnxFile)
  const session = await runtime.load(file, options)
  return closeOnFailure(session, async () => {
    const has = (...names: readonly string[]): boolean =>
      names.every((wanted) => session.inputs.some(({ name }) => name === wanted))
    if (has('input', 'input_lengths', 'scales')) {
      const config = await findPiperConfig(file)
      if (config === undefined)
        throw new ModelLoadError(file, 'its settings *.onnx.json are missing')
      return openPiper({ runtime, session, phonemizer }, config)
    }
    const kokoro = findKokoroInputs(session)
    if (kokoro !== undefined) return openKokoro({ runtime, session, phonemizer }, kokoro, folder)
    const isWave = session.outputs.some(({ name }) => name === 'waveform')
    if (isWave && has('input_ids', 'attention_mask')) return openVits({ runtime, session }, folder)
    const names = session.inputs.map(({ name }) => name).join(', ')
    throw new ModelLoadError(file, `not a Piper, Kokoro or VITS model: its inputs are ${names}`)
  })
}
