import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import type { ImageInput } from '#shared/contracts/image.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'

import { answering, openSurface, type Script } from './surface.ts'

/** The surface over a worker that draws, with object storage of its own. */
export interface ImageSurface {
  readonly surface: Awaited<ReturnType<typeof openSurface>>
  readonly store: ObjectStore
  readonly draw: Script
  /** The uploads that the worker saw of its last job. */
  seen(): readonly Buffer[]
  submitted(): ImageInput
  keys(prefix: string): Promise<string[]>
  close(): Promise<void>
}

export async function openImageSurface(): Promise<ImageSurface> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-images-'))
  const store = openDirectoryStore(folder)
  let seen: Buffer[] = []
  const draw: Script = async function* (request) {
    const input = request.input as unknown as ImageInput
    const sources = [
      ...('imageKey' in input ? [input.imageKey] : []),
      ...('maskKey' in input && input.maskKey !== undefined ? [input.maskKey] : []),
    ]
    seen = []
    for (const key of sources) {
      const { body } = await store.get(key)
      seen.push(Buffer.concat(await Array.fromAsync(body)))
    }
    const imageKeys = Array.from(
      { length: input.n },
      (_, at) => `${input.outputPrefix}/${at}.${input.format ?? 'png'}`,
    )
    for (const key of imageKeys) await store.put(key, Buffer.from(`image ${key}`))
    yield* answering({ imageKeys })(request)
  }
  const surface = await openSurface(draw, { store })
  return {
    surface,
    store,
    draw,
    seen: () => seen,
    submitted: () => surface.submitter.requests.at(-1)?.input as unknown as ImageInput,
    keys: async (prefix) => (await Array.fromAsync(store.list(prefix))).map(({ key }) => key),
    async close() {
      await surface.app.close()
      await rm(folder, { recursive: true })
    },
  }
}
