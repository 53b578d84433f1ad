import { Buffer } from 'node:buffer'

import { BodyMemory } from '#api/http/body-memory.ts'
import { newTemporaryKey, TemporaryObjects } from '#api/jobs/temporary-objects.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import type { ImageLimits } from '#shared/config/inference.ts'
import type { MessageImage } from '#shared/contracts/completion.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import { IMAGE_SIDE_MAX } from '#shared/image-bytes.ts'
import { createGuardedFetch, OutgoingError } from '#shared/net/guarded-fetch.ts'
import { readObject } from '#shared/storage/object-store.ts'

import { optionalEnum } from './field-schemas.ts'
import { formatOf, readHeader } from './images/uploaded-image.ts'
import type { ImageIntake, InferenceServices } from './services.ts'

/** The source of the bytes of an image. */
export type ImageSource =
  | { readonly kind: 'url'; readonly url: string }
  | { readonly kind: 'base64'; readonly data: string }
  | { readonly kind: 'file'; readonly fileId: string }

const FETCH_TIMEOUT_MS = 10_000
/** The time limit for all images of a request together. */
const FETCHES_TIMEOUT_MS = 20_000
const REDIRECTS_MAX = 3
/** Requests of one process that fetch or read images at a time; each holds one image in memory. */
const LOADING_MAX = 8

/** Opens the intake of images with the settings of the server. */
export function createImageIntake({ countMax, bytesMax, urls }: ImageLimits): ImageIntake {
  const isOpen = urls === 'all'
  const fetch = createGuardedFetch({
    timeoutMs: FETCH_TIMEOUT_MS,
    redirectsMax: REDIRECTS_MAX,
    bodyBytesMax: bytesMax,
    allowsPrivateAddresses: isOpen,
  })
  return {
    countMax,
    bytesMax,
    protocols: isOpen ? ['https:', 'http:'] : ['https:'],
    fetch: urls === 'none' ? undefined : fetch,
    memory: new BodyMemory(LOADING_MAX * bytesMax),
  }
}

const PIXELS_MAX = 4096 ** 2
const FORMATS: readonly (string | undefined)[] = ['png', 'jpeg', 'gif', 'webp']

/** The schema of the level of detail of an image. */
export const DETAIL = optionalEnum(['auto', 'low', 'high'], {
  description:
    'The level of detail; `low` uses fewer tokens with models that split images into tiles.',
})

interface PendingImage {
  readonly key: string
  readonly source: ImageSource
  readonly path: string
}

/** The images of the messages of one request, in order. */
export class RequestImages {
  readonly #images: PendingImage[] = []

  get all(): readonly PendingImage[] {
    return this.#images
  }

  /** Adds an image. Its file is at the returned key once the request is stored. */
  add(
    source: ImageSource,
    { path, detail }: { readonly path: string; readonly detail?: string | null | undefined },
  ): Omit<MessageImage, 'at'> {
    const key = newTemporaryKey()
    this.#images.push({ key, source, path })
    return { key, path, ...(detail === 'low' && { detail }) }
  }
}

/** The content of a message: text with images between its characters. */
export class MessageContent {
  #text: string
  readonly #images: MessageImage[] = []
  #endsWithText = false

  /** Begins with a text of the server. */
  constructor(opening = '') {
    this.#text = opening
  }

  /** Adds a text. `separator` is inserted between two texts without an image between them. */
  addText(text: string, separator = ''): void {
    this.#text += this.#endsWithText ? separator + text : text
    this.#endsWithText = true
  }

  addImage(image: Omit<MessageImage, 'at'>): void {
    this.#images.push({ ...image, at: this.#text.length })
    this.#endsWithText = false
  }

  get fields(): { readonly content: string; readonly images?: readonly MessageImage[] } {
    return { content: this.#text, ...(this.#images.length > 0 && { images: this.#images }) }
  }
}

/** Throws if a request has images and its model does not read them. */
export function requireVision(model: CatalogueModel, { all: [first] }: RequestImages): void {
  if (first === undefined || model.capabilities.includes('vision')) return
  throw failure.invalidRequest(
    `Invalid content type. Images are only supported by certain models, and \`${model.id}\` is none of them.`,
    { param: first.path, code: 'unsupported_value' },
  )
}

type Services = Pick<InferenceServices, 'store' | 'log' | 'files' | 'images' | 'temporaryBytes'>

/**
 * Stores the images of a request for its job, and deletes them when it has ended. Throws
 * `invalidRequest` naming the field of an image that cannot be fetched or read.
 */
export async function withImages<Answer>(
  services: Services,
  { images, organizationId }: { readonly images: RequestImages; readonly organizationId: string },
  use: () => Promise<Answer>,
): Promise<Answer> {
  const { countMax, bytesMax, memory } = services.images
  const beyond = images.all[countMax]
  if (beyond !== undefined) {
    throw refusal(beyond.path, `A request may have ${countMax} images.`, 'too_many_images')
  }
  if (images.all.length === 0) return use()
  const temporary = new TemporaryObjects(services, organizationId)
  try {
    // The bytes of all other images were in the body.
    const isLoaded = images.all.some((image) => !isInline(image))
    const room = isLoaded ? await memory.enter(organizationId, bytesMax) : undefined
    try {
      await storeImages(services, { images, organizationId, temporary })
    } finally {
      room?.end()
    }
    return await use()
  } finally {
    await temporary.discard()
  }
}

function isInline({ source }: PendingImage): boolean {
  return source.kind === 'base64' || (source.kind === 'url' && source.url.startsWith('data:'))
}

async function storeImages(
  services: Services,
  {
    images,
    organizationId,
    temporary,
  }: {
    readonly images: RequestImages
    readonly organizationId: string
    readonly temporary: TemporaryObjects
  },
): Promise<void> {
  const signal = AbortSignal.timeout(FETCHES_TIMEOUT_MS)
  for (const image of images.all) {
    const bytes = await load(services, image, { organizationId, signal })
    await check(bytes, image.path)
    await temporary.put(bytes, undefined, image.key)
  }
}

function load(
  services: Services,
  { source, path }: PendingImage,
  { organizationId, signal }: { readonly organizationId: string; readonly signal: AbortSignal },
): Promise<Buffer> {
  switch (source.kind) {
    case 'base64':
      return Promise.resolve(decode(services.images, source.data, path))
    case 'file':
      return readFile(services, organizationId, { fileId: source.fileId, path })
    case 'url':
      return source.url.startsWith('data:')
        ? Promise.resolve(readDataUrl(services.images, source.url, path))
        : download(services.images, source.url, { path, signal })
  }
}

function decode({ bytesMax }: ImageIntake, data: string, path: string): Buffer {
  if (Buffer.byteLength(data, 'base64') > bytesMax) throw tooLarge(path, bytesMax)
  return Buffer.from(data, 'base64')
}

function readDataUrl(intake: ImageIntake, url: string, path: string): Buffer {
  const comma = url.indexOf(',')
  const isBase64 = comma >= 0 && url.slice(0, Math.min(comma, 200)).endsWith(';base64')
  if (isBase64) return decode(intake, url.slice(comma + 1), path)
  throw refusal(path, 'Expected a base64-encoded data URL with an image.', 'invalid_image_url')
}

async function readFile(
  { files, store, images }: Services,
  organizationId: string,
  { fileId, path }: { readonly fileId: string; readonly path: string },
): Promise<Buffer> {
  const file = await files.find(organizationId, fileId)
  if (file === undefined) {
    throw failure.notFound(`No such File object: ${fileId.slice(0, 100)}`, { param: path })
  }
  if (file.bytes > images.bytesMax) throw tooLarge(path, images.bytesMax)
  return readObject(store, file.objectKey, images.bytesMax)
}

async function download(
  { fetch, bytesMax, protocols }: ImageIntake,
  url: string,
  { path, signal }: { readonly path: string; readonly signal: AbortSignal },
): Promise<Buffer> {
  if (!protocols.includes(URL.parse(url)?.protocol ?? '')) {
    throw refusal(path, 'Expected an https URL or a data URL with an image.', 'invalid_image_url')
  }
  if (fetch === undefined) {
    throw refusal(
      path,
      'URLs of images are not fetched here. Send a data URL.',
      'invalid_image_url',
    )
  }
  try {
    const { status, bytes } = await fetch({ url, headers: { accept: 'image/*' }, signal })
    if (status >= 200 && status < 300) return bytes
    throw refusal(path, `The image could not be fetched: status ${status}.`, 'invalid_image_url')
  } catch (error) {
    if (!(error instanceof OutgoingError)) throw error
    if (error.reason === 'size') throw tooLarge(path, bytesMax)
    throw refusal(path, `The image could not be fetched: ${error.message}.`, 'invalid_image_url')
  }
}

/** Only the header is read here; the worker decodes the pixels. */
async function check(bytes: Buffer, path: string): Promise<void> {
  if (!FORMATS.includes(formatOf(bytes))) {
    throw refusal(
      path,
      "You uploaded an unsupported image. Please make sure your image has one of the following formats: ['png', 'jpeg', 'gif', 'webp'].",
      'invalid_image_format',
    )
  }
  const { width = 0, height = 0 } = await readHeader(bytes, () => {
    return refusal(path, 'The image could not be read.', 'invalid_image')
  })
  const isBounded = width * height <= PIXELS_MAX && Math.max(width, height) <= IMAGE_SIDE_MAX
  if (width * height > 0 && isBounded) return
  throw refusal(
    path,
    `The image has ${width}×${height} pixels; at most ${PIXELS_MAX} are allowed, ${IMAGE_SIDE_MAX} on one side.`,
    'image_too_large',
  )
}

function tooLarge(path: string, bytesMax: number): ServiceError {
  return refusal(path, `The image is larger than ${bytesMax} bytes.`, 'image_too_large')
}

function refusal(path: string, reason: string, code: string): ServiceError {
  return failure.invalidRequest(`Invalid '${path}'. ${reason}`, { param: path, code })
}
