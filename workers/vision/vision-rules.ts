import { isRecord } from '#shared/json.ts'
import { findJson } from '#workers/models/folder-json.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

import { rulesOf, type VisionOptions, type VisionRules } from './families.ts'

/** How the model of a folder reads images. Throws `ModelLoadError`. */
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

/** Newer folders have the settings of images among those of all that a model reads. */
async function findProcessor(folder: string): Promise<Record<string, unknown> | undefined> {
  const own = await findJson(folder, 'preprocessor_config.json')
  const shared = (await findJson(folder, 'processor_config.json'))?.image_processor
  return own ?? (isRecord(shared) ? shared : undefined)
}
