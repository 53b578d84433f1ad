import type { ImageItem } from '#shared/contracts/embedding.ts'
import { failure } from '#shared/errors.ts'
import { type ObjectStore, readObject } from '#shared/storage/object-store.ts'
import type { ImageTower } from '#workers/embedding/image-tower.ts'

// The API refuses larger files; this only bounds the memory of a worker.
const IMAGE_BYTES_MAX = 64 * 1024 ** 2

/** Whether an input is an image. */
export function isImage<Text extends string | readonly number[]>(
  item: Text | ImageItem,
): item is ImageItem {
  return typeof item === 'object' && 'key' in item
}

/**
 * The rows that a tower computes for images in storage. One after another, because each takes
 * memory and other jobs fill the batches. Throws `invalidRequest` naming the field of an image.
 */
export async function encodeImages(
  items: readonly ImageItem[],
  { tower, storage }: { readonly tower: ImageTower; readonly storage: ObjectStore },
  signal: AbortSignal,
): Promise<Float32Array[]> {
  const rows: Float32Array[] = []
  for (const { key, path: param } of items) {
    const bytes = await readObject(storage, key, IMAGE_BYTES_MAX)
    rows.push(await tower.encode(bytes, { param, signal }))
  }
  return rows
}

/** The refusal of an image by a text-only model. */
export function readsNoImages({ path: param }: ImageItem): Error {
  return failure.invalidRequest('This model does not read images.', {
    param,
    code: 'unsupported_value',
  })
}

/** The refusal of a text by a model that reads images alone. */
export function readsNoTexts(): Error {
  return failure.invalidRequest('This model reads images, not texts.', {
    param: 'input',
    code: 'unsupported_value',
  })
}
