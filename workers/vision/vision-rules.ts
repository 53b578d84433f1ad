import { isRecord } from '#shared/json.ts'
import { findJson } from '#workers/models/folder-json.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

import { rulesOf, type VisionOptions, type VisionRules } from './families.ts'

/** The image rules of a model's folder. Throws `ModelLoadError`. */
export async function readVisionRules(
  folder: string,
  options: VisionOptions = {},
): Promise<VisionRules> {
  const config = (await findJson(folder, 'config.json')) ?? {}
  const processor = await findProcessor(folder)
  if (processor === undefined) {
    throw new ModelLoadError(
      folder,
      'preprocessor_config.json is missing: it says how images are read',
    )
  }
  try {
    return rulesOf(config, processor, options)
  } catch (error) {
    throw new ModelLoadError(folder, (error as Error).message)
  }
}

/** Newer folders keep the image settings among those of the whole processor. */
async function findProcessor(folder: string): Promise<Record<string, unknown> | undefined> {
  const own = await findJson(folder, 'preprocessor_config.json')
  const shared = (await findJson(folder, 'processor_config.json'))?.image_processor
  return own ?? (isRecord(shared) ? shared : undefined)
}
