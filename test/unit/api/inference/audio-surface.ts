import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'

import { type Part, postForm } from './forms.ts'
import { openSurface, type Script } from './surface.ts'

/** A clip of one sentence. */
export const WAV = await readFile(join(import.meta.dirname, '../../../fixtures/audio/en-1.wav'))

export const MODEL: Part = ['model', 'whisper-1']

/** The field that carries a recording. */
export const clip = (bytes = WAV, filename: string | undefined = 'a.wav'): Part => [
  'file',
  { bytes, ...(filename !== undefined && { filename }) },
]

/** The audio surface over a worker, with object storage of its own. */
export interface AudioSurface {
  readonly surface: Awaited<ReturnType<typeof openSurface>>
  readonly store: ObjectStore
  readonly folder: string
  post(parts: readonly Part[] | Buffer, url?: string): ReturnType<typeof postForm>
  /** Recordings that are no longer needed and were not removed. */
  leftovers(): Promise<string[]>
  close(): Promise<void>
}

/** Opens it; `transcribe` plays the worker and may read what was uploaded. */
export async function openAudioSurface(
  transcribe?: (store: ObjectStore) => Script,
): Promise<AudioSurface> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-audio-'))
  const store = openDirectoryStore(folder)
  const surface = await openSurface(transcribe?.(store), { store })
  return {
    surface,
    store,
    folder,
    post: (parts, url = 'transcriptions') => postForm(surface.app, `/v1/audio/${url}`, parts),
    leftovers: () => Array.fromAsync(store.list('temporary/'), (entry) => entry.key),
    async close() {
      surface.app.server.closeAllConnections()
      await surface.app.close()
      await rm(folder, { recursive: true })
    },
  }
}
