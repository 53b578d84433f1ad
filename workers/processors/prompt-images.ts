import type { Prompt } from '#shared/contracts/completion.ts'
import { failure } from '#shared/errors.ts'
import { defined } from '#shared/json.ts'
import { readObject } from '#shared/storage/object-store.ts'
import type { EmbeddedSpan, PromptPositions, SequenceRequest } from '#workers/engine/types.ts'
import type { PromptImage, VisionModel } from '#workers/vision/vision-model.ts'

import type { CompletionModel } from './completion-model.ts'

// The API refuses larger files; this only bounds the memory of a worker.
const IMAGE_BYTES_MAX = 64 * 1024 ** 2

/** The images of a prompt, in order. Throws `invalidRequest` for a model that reads none. */
export async function readImages(
  { vision }: Pick<CompletionModel, 'vision'>,
  prompt: Prompt,
): Promise<readonly PromptImage[]> {
  const images = prompt.form === 'chat' ? prompt.messages.flatMap((turn) => turn.images ?? []) : []
  const [first] = images
  if (first === undefined) return []
  if (vision === undefined) {
    throw failure.invalidRequest('This model does not read images.', {
      param: first.path,
      code: 'unsupported_value',
    })
  }
  const read: PromptImage[] = []
  for (const image of images) {
    const bytes = await readObject(vision.storage, image.key, IMAGE_BYTES_MAX)
    read.push(await vision.encoder.read(bytes, image))
  }
  return read
}

/** A prompt with the positions of its images. */
export interface PlacedImages {
  readonly tokenIds: readonly number[]
  /** The same with a content hash at the positions of images. */
  readonly identifiedIds: readonly number[]
  readonly places: readonly Place[]
}

interface Place {
  readonly image: PromptImage
  /** The ranges of its embeddings; each image has one or several. */
  readonly spans: readonly { readonly start: number; readonly length: number }[]
}

/**
 * Expands each image at its token. Throws `invalidRequest` when the chat template has not written a
 * token for each of them.
 */
export function placeImages(
  tokenIds: readonly number[],
  images: readonly PromptImage[],
  options: Pick<VisionModel, 'imageTokenId' | 'placeholder'> & {
    readonly encode: (text: string) => readonly number[]
  },
): PlacedImages {
  const { imageTokenId, placeholder, encode } = options
  const count = tokenIds.filter((id) => id === placeholder.tokenId).length
  if (count !== images.length) {
    throw failure.invalidRequest(
      `The chat template of this model shows ${count} of ${images.length} images. Send images in messages of the user.`,
      { param: 'messages', code: 'invalid_value' },
    )
  }
  const placed: number[] = []
  const identified: number[] = []
  const places: Place[] = []
  for (const id of tokenIds) {
    const image = id === placeholder.tokenId ? images[places.length] : undefined
    if (image === undefined) {
      placed.push(id)
      identified.push(id)
      continue
    }
    const spans: { start: number; length: number }[] = []
    for (const mark of image.marks) {
      if (typeof mark === 'string' || 'tokenId' in mark) {
        const marked = typeof mark === 'string' ? encode(mark) : [mark.tokenId]
        placed.push(...marked)
        identified.push(...marked)
        continue
      }
      spans.push({ start: placed.length, length: mark.embeddings })
      for (let at = 0; at < mark.embeddings; at += 1) {
        placed.push(imageTokenId)
        identified.push(image.id)
      }
    }
    places.push({ image, spans })
  }
  return { tokenIds: placed, identifiedIds: identified, places }
}

/** The inputs of the engine for a prompt with images. */
export type EmbeddedPrompt = Pick<SequenceRequest, 'promptTokenIds' | 'embedded' | 'positions'>

/** Computes the embeddings of all images of a prompt, or takes them from the cache. */
export async function embedImages(
  { identifiedIds, places }: PlacedImages,
  options: { readonly scope: string; readonly signal: AbortSignal },
): Promise<EmbeddedPrompt> {
  const embedded: EmbeddedSpan[] = []
  for (const { image, spans } of places) {
    const whole = await image.encode(options)
    const total = spans.reduce((sum, { length }) => sum + length, 0)
    const size = whole.length / total
    let at = 0
    for (const { start, length } of spans) {
      embedded.push({ start, embeddings: whole.subarray(at * size, (at + length) * size) })
      at += length
    }
  }
  const positions = positionsOf(identifiedIds.length, places)
  return {
    promptTokenIds: identifiedIds,
    embedded,
    ...(positions !== undefined && { positions }),
  }
}

/**
 * Positions of images with a grid: all embeddings of an image have one time, and the rows and
 * columns of the grid; the text continues after the largest position.
 */
function positionsOf(length: number, places: readonly Place[]): PromptPositions | undefined {
  if (places.every(({ image }) => image.grid === undefined)) return undefined
  const axes: [number[], number[], number[]] = [[], [], []]
  let next = 0
  const skipTo = (end: number): void => {
    while (axes[0].length < end) {
      for (const axis of axes) axis.push(next)
      next += 1
    }
  }
  for (const { image, spans } of places) {
    const { rows, columns } = defined(image.grid)
    skipTo(defined(spans[0]).start)
    for (let at = 0; at < rows * columns; at += 1) {
      axes[0].push(next)
      axes[1].push(next + Math.floor(at / columns))
      axes[2].push(next + (at % columns))
    }
    next += Math.max(rows, columns)
  }
  skipTo(length)
  return { axes, next }
}
