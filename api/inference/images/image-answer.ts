import type { FastifyRequest } from 'fastify'

import { publicBaseOf, publicPathOf } from '#api/http/public-path.ts'
import type { SseSerializer } from '#api/inference/generate.ts'
import { getCapableModel, type ModelDirectory } from '#api/inference/model-route.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import type { Http } from '#api/jobs/run-inference.ts'
import { type Caller, mayUseModel } from '#api/v1/request-context.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import { unixSeconds } from '#shared/clock.ts'
import { readObject } from '#shared/storage/object-store.ts'

import type { ImageFields } from './image-request.ts'

const URL_LIFETIME_MS = 3_600_000
const IMAGE_BYTES_MAX = 32 * 1024 * 1024
// Images are not counted in tokens here, but clients expect the field.
const NO_TOKENS = {
  input_tokens: 0,
  output_tokens: 0,
  total_tokens: 0,
  input_tokens_details: { image_tokens: 0, text_tokens: 0 },
}
/** The model of requests without one. */
const DEFAULT_MODEL = 'dall-e-2'

/** The answer of the image endpoints. */
export const IMAGES_RESPONSE = {
  type: 'object',
  description: 'The images.',
  required: ['created', 'data'],
  properties: {
    created: { type: 'integer' },
    data: {
      type: 'array',
      items: {
        type: 'object',
        properties: {
          url: {
            type: 'string',
            format: 'uri',
            description: 'The URL of the image, valid for an hour.',
          },
          b64_json: { type: 'string', description: 'The bytes in base64.' },
        },
      },
    },
    output_format: { type: 'string', enum: ['png', 'jpeg', 'webp'] },
    usage: { type: 'object', description: 'Token counts; images are not counted in tokens.' },
  },
}

/** The requested model, else the default one. Throws unless it generates images. */
export function getImageModel(
  models: ModelDirectory,
  caller: Caller,
  { model }: ImageFields,
  endpoint: string,
): Promise<CatalogueModel> {
  const { catalogue } = models
  const first = catalogue.models.find(
    (candidate) => candidate.kind === 'image' && mayUseModel(caller, candidate),
  )
  const fallback = catalogue.find(DEFAULT_MODEL)?.id ?? first?.id ?? DEFAULT_MODEL
  return getCapableModel(models, caller, { name: model ?? fallback, kind: 'image', endpoint })
}

/**
 * Writes one event for each image of a streamed answer, and for each partial image; the stored
 * objects are then deleted.
 */
export function serializeImages(
  services: InferenceServices,
  fields: ImageFields,
  kind: 'image_generation' | 'image_edit',
): SseSerializer<'image'> {
  const { size, quality, background, output_format: format } = fields
  const sent = new Set<string>()
  const write = (type: string, image: object): string => {
    const about = {
      type,
      created_at: unixSeconds(services.clock.now()),
      size: size ?? 'auto',
      quality: quality ?? 'auto',
      background: background ?? 'auto',
      output_format: format ?? 'png',
    }
    return `event: ${type}\ndata: ${JSON.stringify({ ...about, ...image })}\n\n`
  }
  return {
    opening: () => '',
    async serialize(event) {
      if (event.type === 'progress' && event.partialImage !== undefined) {
        const { key, image, index } = event.partialImage
        const [inline] = await inlineImages(services, [key])
        // A worker that replaces a lost one draws the partial images again.
        if (sent.has(key)) return ''
        sent.add(key)
        return write(`${kind}.partial_image`, {
          ...inline,
          partial_image_index: index,
          ...((fields.n ?? 1) > 1 && { image_index: image }),
        })
      }
      if (event.type !== 'result') return ''
      const images = await inlineImages(services, event.result.imageKeys)
      return images
        .map((image) => write(`${kind}.completed`, { ...image, usage: NO_TOKENS }))
        .join('')
    },
  }
}

/** Presents images as URLs, or as base64; the stored objects are then deleted. */
export async function answerImages(
  { request }: Http,
  services: InferenceServices,
  { fields, imageKeys }: { readonly fields: ImageFields; readonly imageKeys: readonly string[] },
): Promise<object> {
  const nowMs = services.clock.now()
  const data =
    (fields.response_format ?? defaultFormatOf(fields)) === 'b64_json'
      ? await inlineImages(services, imageKeys)
      : imageKeys.map((key) => ({ url: addressOf(request, services, { key, nowMs }) }))
  return { created: unixSeconds(nowMs), data, ...aboutImages(fields) }
}

/** The fields with which GPT Image models describe their images. */
export function aboutImages({ output_format: format }: ImageFields): object {
  return { output_format: format ?? 'png', usage: NO_TOKENS }
}

/** Clients of OpenAI's GPT Image models expect base64 by default. */
function defaultFormatOf({ model }: ImageFields): 'url' | 'b64_json' {
  return /^(chat)?gpt-image/.test(model ?? '') ? 'b64_json' : 'url'
}

/** The bytes of images in base64; the stored objects are then deleted. */
export async function inlineImages(
  { store }: Pick<InferenceServices, 'store'>,
  imageKeys: readonly string[],
): Promise<readonly object[]> {
  const data: object[] = []
  for (const key of imageKeys) {
    const bytes = await readObject(store, key, IMAGE_BYTES_MAX)
    data.push({ b64_json: bytes.toString('base64') })
    await store.delete(key)
  }
  return data
}

// The URL uses the host and path prefix of the client's request.
function addressOf(
  request: FastifyRequest,
  { signer, publicUrl }: InferenceServices,
  { key, nowMs }: { readonly key: string; readonly nowMs: number },
): string {
  const { protocol, host } = request
  const path = signer.sign(`/v1/${key}`, nowMs + URL_LIFETIME_MS)
  // A background job's request comes from this process, so its host is not that of the client.
  if (request.context.stored !== undefined) return publicBaseOf(publicUrl) + path
  return `${protocol}://${host}${publicPathOf(request, publicUrl)}${path}`
}
