import { stat } from 'node:fs/promises'
import { basename, join, resolve } from 'node:path'

import { UsageError } from '#launcher/command-line.ts'
import type { Env } from '#shared/config/config.ts'
import { convertCheckpoint } from '#workers/convert/convert-checkpoint.ts'
import { findWeightForm, WEIGHT_FORMS } from '#workers/convert/weight-forms.ts'
import { ensureModel } from '#workers/models/fetcher.ts'
import { parseHubSource } from '#workers/models/hub.ts'
import type { StoredOptions } from '#workers/models/stored-cache.ts'

import { makeProgress } from './progress-bar.ts'

const USUAL_WEIGHTS = 'int8'

/** A checkpoint to convert, and a name for the folder of the result. */
interface Source {
  readonly folder: string
  readonly name: string
}

/** Converts a checkpoint of the hub or of a folder, and prints the entry of models.json. */
export async function convertModel(
  env: Env,
  options: {
    readonly name: string | undefined
    readonly out: string | undefined
    readonly weights: string | undefined
    readonly fetchOptions: StoredOptions
  },
): Promise<void> {
  const { name, out, weights = USUAL_WEIGHTS, fetchOptions } = options
  if (name === undefined) {
    throw new UsageError('models convert needs a repository such as owner/name, or a folder')
  }
  const form = findWeightForm(weights)
  if (form === undefined) {
    const known = Object.keys(WEIGHT_FORMS).join(', ')
    throw new UsageError(`--weights is "${weights}", expected one of ${known}`)
  }
  // The process runs in the folder of the project; paths are relative to the caller's folder.
  const here = env.INIT_CWD ?? env.PWD ?? '.'
  const target = out === undefined ? undefined : resolve(here, out)
  await refuseExisting(target)
  const source = await findSource(name, { here, fetchOptions })
  const usual = join(fetchOptions.cacheDir, 'converted', `${source.name}-${weights}`)
  const folder = target ?? usual
  await refuseExisting(folder)
  const onProgress = makeProgress()
  await convertCheckpoint({ folder: source.folder, target: folder, form, onProgress })
  console.log(folder)
  const place = JSON.stringify(folder)
  console.log(`add it to models.json: { "id": "…", "kind": "completion", "source": ${place} }`)
}

/** Checked before anything is fetched; the conversion checks again while it holds the lock. */
async function refuseExisting(target: string | undefined): Promise<void> {
  if (target === undefined || (await stat(target).catch(() => undefined)) === undefined) return
  throw new UsageError(`${target} exists already: name a new folder with --out, or delete it`)
}

async function findSource(
  name: string,
  { here, fetchOptions }: { readonly here: string; readonly fetchOptions: StoredOptions },
): Promise<Source> {
  const folder = resolve(here, name)
  const found = await stat(folder).catch(() => undefined)
  if (found?.isDirectory() === true) return { folder, name: basename(folder) }
  const { repository, revision } = readRepository(name)
  const source = `hub:${repository}@${revision}`
  const wanted = { id: name, source, options: {}, layout: 'checkpoint' } as const
  return {
    folder: await ensureModel(wanted, { ...fetchOptions, isThorough: true }),
    name: `${repository}@${revision}`.replaceAll('/', '--').replace(/@main$/, ''),
  }
}

function readRepository(name: string): ReturnType<typeof parseHubSource> {
  try {
    return parseHubSource(name)
  } catch {
    throw new UsageError(
      `"${name}" is neither a folder nor a repository such as owner/name or owner/name@revision`,
    )
  }
}
