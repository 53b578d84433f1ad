import type { Static } from 'typebox'

import {
  fixed,
  ineffective,
  invalidValue,
  modelBodies,
  optionalBoolean,
  optionalEnum,
  optionalInteger,
  optionalString,
} from '#api/inference/field-schemas.ts'
import { type ImageSource, RequestImages, requireVision } from '#api/inference/request-images.ts'
import { SAMPLING_FIELDS } from '#api/inference/sampling-fields.ts'
import type { JobEvent } from '#api/jobs/observers.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import type { EmbedInput } from '#shared/contracts/embedding.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import { Type } from '#shared/schema-types.ts'

import { decodeOpenAiTokens, findEncoding } from './openai-tokens.ts'

/** The most inputs of one request. */
export const INPUTS_MAX = 2048
/** The most tokens of all inputs of one request. */
const EMBEDDING_TOKENS_MAX = 300_000
const DIMENSIONS_MAX = 65_536

const TEXT = Type.String({ minLength: 1 })
const TOKEN_IDS = Type.Array(Type.Integer({ minimum: 0 }), {
  minItems: 1,
  maxItems: EMBEDDING_TOKENS_MAX,
})

/** Texts or token ids, one or several. */
export const TEXTS_OR_TOKEN_IDS = [
  TEXT,
  Type.Array(TEXT, { minItems: 1 }),
  TOKEN_IDS,
  Type.Array(TOKEN_IDS, { minItems: 1 }),
] as const

/** An input that is an object: a text or an image. */
export const TEXT_OR_IMAGE = Type.Object(
  {
    text: optionalString({ minLength: 1 }),
    image: optionalString({
      minLength: 1,
      description:
        'An image as a data URL, as plain base64, or as an https URL that the server fetches; for models with the capability `vision`.',
    }),
  },
  { additionalProperties: false },
)

/** The side of an input that is cut, as vLLM names it. */
export const TRUNCATION_SIDE = optionalEnum(['left', 'right'], {
  default: 'right',
  description: 'The side of an input at which tokens are dropped; `left` is its beginning.',
})

/** The same as Text Embeddings Inference names it. */
export const TRUNCATION_DIRECTION = optionalEnum(['Left', 'left', 'Right', 'right'], {
  default: 'Right',
  description: 'The side of an input at which tokens are dropped; `Left` is its beginning.',
})

/** The side in the form of the workers. */
export function truncationSide(
  side: string | null | undefined,
): Pick<EmbedInput, 'truncationSide'> {
  return side?.toLowerCase() === 'left' ? { truncationSide: 'left' } : {}
}

const FIELDS = {
  input: Type.Union([...TEXTS_OR_TOKEN_IDS, Type.Array(TEXT_OR_IMAGE, { minItems: 1 })], {
    description:
      'A text, several texts, the token ids of one text, lists of token ids, or objects with one text or one image each.',
  }),
  modality: optionalEnum(['text', 'image'], {
    default: 'text',
    description: 'With `image`, as in Infinity, each text of `input` is an image.',
  }),
  encoding_format: optionalEnum(['float', 'base64'], {
    default: 'float',
    description: 'Numbers, or base64 of little-endian 32-bit floats.',
  }),
  dimensions: optionalInteger({
    minimum: 0,
    maximum: DIMENSIONS_MAX,
    description:
      'Keep this many leading dimensions; for models that are trained for it. 0 keeps all, as in Infinity.',
  }),
  output_dimension: optionalInteger({
    minimum: 1,
    maximum: DIMENSIONS_MAX,
    description: 'Alias of `dimensions`.',
  }),
  // Clients decode the answer according to these fields, so another value cannot be ignored.
  output_dtype: fixed(['float']),
  embedding_type: fixed(['float']),
  embed_dtype: fixed(['float32']),
  endianness: fixed(['native', 'little']),
  input_type: optionalEnum(['query', 'passage', 'document'], {
    description: 'The purpose of the texts; for models that are trained with a prefix per purpose.',
  }),
  truncate_prompt_tokens: optionalInteger({
    minimum: -1,
    description:
      'Keep this many tokens of each input, including special tokens; -1 keeps as many as fit into the context. If absent, an input that does not fit is refused.',
  }),
  truncate: optionalBoolean({
    description: 'True has the same effect as `truncate_prompt_tokens: -1`.',
  }),
  truncation: optionalBoolean({ description: 'Alias of `truncate`.' }),
  truncation_side: TRUNCATION_SIDE,
  task: optionalString({
    maxLength: 64,
    description:
      'The task, such as `text-matching`, for models with one adapter per task. For other models `retrieval.query` and `retrieval.passage` set `input_type`; other tasks are ignored and reported in the answer.',
  }),
  normalize: ineffective({ type: ['boolean', 'null'] }, [true]),
  normalized: ineffective({ type: ['boolean', 'null'] }, [true]),
  add_special_tokens: ineffective({ type: ['boolean', 'null'] }, [true]),
  user: SAMPLING_FIELDS.user,
  timeout: SAMPLING_FIELDS.timeout,
}

/** The bodies of `POST /v1/embeddings` and of its older path. */
export const { body: EMBEDDING_BODY, engineBody: ENGINE_EMBEDDING_BODY } = modelBodies(FIELDS)

export type EmbeddingBody = Static<typeof ENGINE_EMBEDDING_BODY>

/**
 * Refuses too many inputs before the validator reads them all. A list of numbers is one input; the
 * schema bounds its length.
 */
export function checkInputCount(body: unknown, param = 'input'): void {
  const { [param]: input } = (body ?? {}) as Readonly<Record<string, unknown>>
  if (!Array.isArray(input) || typeof input[0] === 'number') return
  if (input.length > INPUTS_MAX) throw tooManyInputs(input.length, param)
}

/**
 * Refuses too many inputs before the validator reads them all, and vLLM's conversations, which
 * would need a chat template.
 */
export function checkEmbeddingBody(body: unknown): void {
  checkInputCount(body)
  refuseMessages(body, 'Embedding models')
}

/** Throws for a body with vLLM's `messages`. */
export function refuseMessages(body: unknown, models: string): void {
  const { messages } = (body ?? {}) as { readonly messages?: unknown }
  if (messages === undefined || messages === null) return
  throw failure.invalidRequest(
    `Unsupported parameter: 'messages'. ${models} here have no chat template; send the text as 'input'.`,
    { param: 'messages', code: 'unsupported_parameter' },
  )
}

/** An embedding in the form of the workers, and the files of its images. */
export interface Embedding {
  readonly input: EmbedInput
  readonly images: RequestImages
}

/**
 * An embedding request in the form of the workers. Token ids are those of the model, unless
 * `modelName` is a model of OpenAI: then they are decoded. Throws for faults that the schema cannot
 * express.
 */
export async function embedInput(
  body: EmbeddingBody,
  { model, modelName }: { readonly model: CatalogueModel; readonly modelName: string },
): Promise<Embedding> {
  const { items: sent, images } =
    body.modality === 'image' ? imagesOf(body.input) : itemsOf(body.input)
  requireVision(model, images)
  const tokensMax = tokensMaxOf(body)
  checkTokenCount(sent)
  const encoding = findEncoding(modelName)
  const items =
    encoding === undefined || !isTokenLists(sent) ? sent : await decodeOpenAiTokens(encoding, sent)
  if (model.options.tokenIdVocabulary === 'reject' && isTokenLists(items)) {
    throw failure.invalidRequest(
      "Invalid type for 'input': the model takes texts, but got token ids instead.",
      { param: 'input', code: 'invalid_type' },
    )
  }
  const input: EmbedInput = {
    task: 'embed',
    items,
    ...purposeOf(body),
    dimensions: (body.dimensions || body.output_dimension) ?? null,
    ...(tokensMax !== undefined && { tokensMax }),
    ...truncationSide(body.truncation_side),
  }
  return { input, images }
}

/** Refuses inputs with too many token ids together. */
export function checkTokenCount(items: EmbedInput['items']): void {
  if (!isTokenLists(items)) return
  checkTokens(items.reduce((sum, { length }) => sum + length, 0))
}

/** The worker counts the tokens of texts before it computes. */
export function watchTokens(event: JobEvent<'embedding'>): void {
  if (event.type === 'started') checkTokens(event.promptTokens)
}

function checkTokens(tokens: number): void {
  if (tokens <= EMBEDDING_TOKENS_MAX) return
  throw failure.invalidRequest(
    `Invalid 'input': a request may embed at most ${EMBEDDING_TOKENS_MAX} tokens, but its inputs have ${tokens}.`,
    { param: 'input', code: 'max_tokens_per_request' },
  )
}

function isTokenLists(items: EmbedInput['items']): items is readonly (readonly number[])[] {
  return Array.isArray(items[0])
}

/** The kind of the texts, such as a query, which workers map to the prefixes of their model. */
function purposeOf(body: EmbeddingBody): Pick<EmbedInput, 'role' | 'taskName'> {
  const { input_type: type, task } = body
  return {
    role: type === 'document' ? 'passage' : (type ?? 'none'),
    ...(task && { taskName: task }),
  }
}

/** How much of each input is kept. Several servers name this differently; the names must agree. */
export function tokensMaxOf(
  body: Pick<EmbeddingBody, 'truncate_prompt_tokens' | 'truncate' | 'truncation'>,
): EmbedInput['tokensMax'] {
  const { truncate_prompt_tokens: tokens } = body
  const truncate = body.truncate ?? (body.truncation === true ? true : undefined)
  if (tokens === 0) {
    throw failure.invalidRequest(
      "Invalid 'truncate_prompt_tokens': expected -1 or a value >= 1, but got 0 instead.",
      { param: 'truncate_prompt_tokens', code: 'integer_below_min_value' },
    )
  }
  if (tokens === undefined || tokens === null) return truncate === true ? 'context' : undefined
  if (truncate === false || (truncate === true && tokens !== -1)) {
    throw invalidValue('truncate', `${truncate} contradicts 'truncate_prompt_tokens', ${tokens}.`)
  }
  return tokens === -1 ? 'context' : tokens
}

function tooManyInputs(count: number, param: string): ServiceError {
  return failure.invalidRequest(
    `Invalid '${param}': array too long. Expected an array with maximum length ${INPUTS_MAX}, but got an array with length ${count} instead.`,
    { param, code: 'array_above_max_length' },
  )
}

type TextOrImage = Static<typeof TEXT_OR_IMAGE>
type Text = string | readonly number[]

/**
 * The inputs of a request and the files of its images. One text or one list of token ids is one
 * input.
 */
export function itemsOf(input: EmbeddingBody['input']): Pick<EmbedInput, 'items'> & {
  readonly images: RequestImages
} {
  const images = new RequestImages()
  if (typeof input === 'string') return { items: [input], images }
  if (isTokenIds(input)) return { items: [input], images }
  const items = input.map((item, index) => {
    return isObject(item) ? itemOf(item, `input[${index}]`, images) : item
  })
  return { items, images }
}

/** The inputs of a request whose texts are images. */
function imagesOf(input: EmbeddingBody['input']): ReturnType<typeof itemsOf> {
  const images = new RequestImages()
  if (typeof input === 'string') {
    return { items: [images.add(sourceOf(input), { path: 'input' })], images }
  }
  const items = input.map((item: Text | number | TextOrImage, index) => {
    const path = `input[${index}]`
    if (typeof item === 'string') return images.add(sourceOf(item), { path })
    if (typeof item === 'object' && isObject(item)) return itemOf(item, path, images)
    throw invalidValue(path, "expected an image, because 'modality' is 'image'.")
  })
  return { items, images }
}

function isObject(item: Text | TextOrImage): item is TextOrImage {
  return typeof item === 'object' && !Array.isArray(item)
}

/** One text or one image; no supported model reads both together. */
function itemOf(
  { text, image }: TextOrImage,
  path: string,
  images: RequestImages,
): EmbedInput['items'][number] {
  const hasText = typeof text === 'string'
  const hasImage = typeof image === 'string'
  if (hasText === hasImage) throw invalidValue(path, "expected one of 'text' and 'image'.")
  if (!hasImage) return text ?? ''
  return images.add(sourceOf(image), { path: `${path}.image` })
}

/** The source of an image: the text itself, or the URL in it. Base64 has no colon. */
export function sourceOf(image: string): ImageSource {
  return image.includes(':') ? { kind: 'url', url: image } : { kind: 'base64', data: image }
}

function isTokenIds(input: readonly (Text | number | TextOrImage)[]): input is number[] {
  return typeof input[0] === 'number'
}
