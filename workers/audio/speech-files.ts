import { isRecord } from '#shared/json.ts'
import { WEIGHT_SUFFIXES } from '#workers/models/choose-files.ts'
import {
  type EncoderDecoderFiles,
  findEncoderDecoder,
} from '#workers/models/encoder-decoder-files.ts'
import { countIn, findJson } from '#workers/models/folder-json.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

import { SAMPLE_RATE } from './decode.ts'

/** Finds an encoder and its decoder. Throws `ModelLoadError` where there are none. */
export async function findSpeechGraphs(
  folder: string,
  onnxFile: string | undefined,
): Promise<EncoderDecoderFiles> {
  const found = await findEncoderDecoder(folder, {
    suffixes: WEIGHT_SUFFIXES.cpu,
    ...(onnxFile !== undefined && { onnxFile }),
  })
  if (found !== undefined) return found
  throw new ModelLoadError(
    folder,
    'there is no encoder_model with a decoder_model in onnx/ or beside it, as `optimum-cli export onnx --task automatic-speech-recognition-with-past` writes them',
  )
}

/**
 * Reads the settings of a model whose features are the samples. Throws `ModelLoadError` for another
 * sampling rate.
 */
export async function readWaveFeatures(
  folder: string,
): Promise<{ /** To mean 0 and variance 1. */ readonly isNormalized: boolean }> {
  // Newer exports store them in the file of the whole processor.
  const { feature_extractor: part } = (await findJson(folder, 'processor_config.json')) ?? {}
  const whole = await findJson(folder, 'preprocessor_config.json')
  const features = whole ?? (isRecord(part) ? part : {})
  const sampleRate = countIn(folder, features, 'sampling_rate', {
    fallback: SAMPLE_RATE,
    max: 192_000,
  })
  if (sampleRate !== SAMPLE_RATE) {
    throw new ModelLoadError(folder, `${sampleRate} samples a second are not supported`)
  }
  return { isNormalized: features.do_normalize !== false }
}
