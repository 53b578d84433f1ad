import { cpSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

import { convertCheckpoint } from '#workers/convert/convert-checkpoint.ts'
import { WEIGHT_FORMS } from '#workers/convert/weight-forms.ts'
import {
  readSafetensors,
  type StoredTensor,
  writeSafetensors,
} from '#workers/tensor/safetensors.ts'

/** Checkpoints of all families, made by test/fixtures/build-models.py. */
export const CHECKPOINTS = join(import.meta.dirname, '../../../fixtures/checkpoints')

export type Config = Record<string, unknown>
export type FormName = keyof typeof WEIGHT_FORMS

/** A temporary folder with copies of checkpoints, which the caller removes. */
export function openCheckpoints() {
  const root = mkdtempSync(join(tmpdir(), 'millrace-convert-'))
  const newFolder = (): string => mkdtempSync(join(root, 'c-'))
  return {
    root,
    newFolder,
    copyOf(name: string): string {
      const folder = join(newFolder(), 'checkpoint')
      cpSync(join(CHECKPOINTS, name), folder, { recursive: true })
      return folder
    },
    /** Converts to `out` beside the checkpoint. */
    convert: (folder: string, form: FormName = 'fp32'): Promise<void> =>
      convertCheckpoint({ folder, target: join(dirname(folder), 'out'), form: WEIGHT_FORMS[form] }),
  }
}

export function changeConfig(folder: string, change: (config: Config) => Config): void {
  const path = join(folder, 'config.json')
  writeFileSync(path, JSON.stringify(change(JSON.parse(readFileSync(path, 'utf8')) as Config)))
}

export async function changeTensors(
  folder: string,
  change: (tensors: Map<string, StoredTensor>) => void,
): Promise<void> {
  const path = join(folder, 'model.safetensors')
  const tensors = new Map(await readSafetensors(path))
  change(tensors)
  writeFileSync(path, writeSafetensors(tensors))
}
