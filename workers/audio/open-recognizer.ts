import { readdir } from 'node:fs/promises'

import { findJson } from '#workers/models/folder-json.ts'
import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'

import { openCtc } from './ctc.ts'
import { openMoonshine } from './moonshine.ts'
import type { Recognizer } from './recognizer.ts'
import { openVoiceActivity } from './voice-activity.ts'
import { openWhisper } from './whisper.ts'
import { withVoiceActivity } from './with-voice-activity.ts'

/** Options of a speech recognition model. */
interface RecognizerOptions {
  readonly runtime: Runtime
  readonly folder: string
  readonly onnxFile?: string
  readonly session?: SessionOptions
  /** The folder of a model that detects speech. */
  readonly activityFolder?: string
}

type LayoutOptions = Omit<RecognizerOptions, 'activityFolder'>

/** `model_type` of `config.json` → layout. */
const LAYOUTS: Readonly<Record<string, (options: LayoutOptions) => Promise<Recognizer>>> = {
  whisper: openWhisper,
  wav2vec2: openCtc,
  hubert: openCtc,
  wavlm: openCtc,
  unispeech: openCtc,
  'unispeech-sat': openCtc,
  'data2vec-audio': openCtc,
  'wav2vec2-conformer': openCtc,
  sew: openCtc,
  'sew-d': openCtc,
  moonshine: openMoonshine,
}

/**
 * Loads a speech recognition model in the layout that `config.json` names; without a name, Whisper.
 * Throws `ModelLoadError`, which names an unsupported layout.
 */
export async function openRecognizer({
  activityFolder,
  ...options
}: RecognizerOptions): Promise<Recognizer> {
  const { folder, runtime } = options
  const recognizer = await openLayout(folder, options)
  if (activityFolder === undefined) return withVoiceActivity(recognizer, undefined)
  return closeOnFailure(recognizer, async () => {
    return withVoiceActivity(recognizer, await openVoiceActivity(runtime, activityFolder))
  })
}

async function openLayout(folder: string, options: LayoutOptions): Promise<Recognizer> {
  const joiner = (await readdir(folder)).find((name) => /(^|[-_])joiner\b.*\.onnx$/.test(name))
  if (joiner !== undefined) {
    throw new ModelLoadError(folder, `transducers are not supported: there is ${joiner}`)
  }
  const config = await findJson(folder, 'config.json')
  if (config === undefined) {
    throw new ModelLoadError(
      folder,
      'config.json is missing, which names the layout; files of sherpa-onnx and onnxruntime-genai are not supported, those of onnx-community are',
    )
  }
  const type = config.model_type ?? 'whisper'
  const open = Object.entries(LAYOUTS).find(([name]) => name === type)?.[1]
  if (open !== undefined) return open(options)
  const known = Object.keys(LAYOUTS).join(', ')
  throw new ModelLoadError(
    folder,
    `speech models of type ${JSON.stringify(type)} are not supported; supported: ${known}`,
  )
}
