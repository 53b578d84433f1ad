import { randomInt } from 'node:crypto'

import type { Static } from 'typebox'

import {
  ineffective,
  optionalBoolean,
  optionalEnum,
  optionalInteger,
  optionalNumber,
  optionalString,
} from '#api/inference/field-schemas.ts'
import { BINARY } from '#api/inference/form-fields.ts'
import type { ImageFormat, ImageInput } from '#shared/contracts/image.ts'
import { randomId } from '#shared/ids.ts'
import { Type } from '#shared/schema-types.ts'

const IMAGES_MAX = 10
const PARTIAL_IMAGES_MAX = 3
const PROMPT_LENGTH_MAX = 1000
const SIZES = [
  ...['256x256', '512x512', '1024x1024', '1536x1024', '1024x1536', '1792x1024', '1024x1792'],
  'auto',
]
const IMAGE_FORMATS: readonly ImageFormat[] = ['png', 'jpeg', 'webp']
const STEPS_MAX = 150
const GUIDANCE_MAX = 30
const SEED_MAX = 2 ** 32 - 1

/** The prefix of images; `GET /media` serves them for an hour. */
const MEDIA_PREFIX = 'media'

const COMMON = {
  model: optionalString({
    minLength: 1,
    description: 'The id of a model; the default one if absent.',
  }),
  n: optionalInteger({
    minimum: 1,
    maximum: IMAGES_MAX,
    default: 1,
    description: 'The number of images to generate.',
  }),
  size: optionalEnum(SIZES, {
    default: '1024x1024',
    description: 'The width and height in pixels.',
  }),
  response_format: optionalEnum(['url', 'b64_json'], {
    default: 'url',
    description:
      'A URL that is valid for an hour, or the bytes in base64. The latter is the default if the name of the model begins with `gpt-image` or `chatgpt-image`.',
  }),
  user: optionalString({ maxLength: 64, description: 'Your identifier of the end user.' }),
  safety_identifier: optionalString({ maxLength: 64, description: 'Newer name of `user`.' }),
  seed: optionalInteger({
    minimum: 0,
    maximum: SEED_MAX,
    description: 'The seed of the random numbers, for reproducible images; random if absent.',
  }),
  steps: optionalInteger({
    minimum: 1,
    maximum: STEPS_MAX,
    description: 'The number of denoising steps; the default of the model if absent.',
  }),
  guidance_scale: optionalNumber({
    minimum: 0,
    maximum: GUIDANCE_MAX,
    description:
      'The guidance scale: how closely the image follows the prompt; the default of the model if absent.',
  }),
  negative_prompt: optionalString({
    maxLength: PROMPT_LENGTH_MAX,
    description: 'Content that the image should not show.',
  }),
  quality: ineffective(
    {
      type: ['string', 'null'],
      enum: ['standard', 'auto', 'hd', 'low', 'medium', 'high', null],
    },
    ['standard', 'auto'],
  ),
  style: ineffective({ type: ['string', 'null'], enum: ['vivid', 'natural', null] }),
  background: ineffective(
    { type: ['string', 'null'], enum: ['transparent', 'opaque', 'auto', null] },
    ['opaque', 'auto'],
  ),
  moderation: ineffective({ type: ['string', 'null'], enum: ['low', 'auto', null] }, [
    'low',
    'auto',
  ]),
  input_fidelity: ineffective({ type: ['string', 'null'], enum: ['high', 'low', null] }),
  output_format: optionalEnum(IMAGE_FORMATS, {
    default: 'png',
    description: 'The file type of the images.',
  }),
  output_compression: optionalInteger({
    minimum: 0,
    maximum: 100,
    description: 'The quality of JPEG and WebP files in percent; ignored for PNG files.',
  }),
  stream: optionalBoolean({
    default: false,
    description:
      'Answer with server-sent events: one `image_generation.completed` event per image (`image_edit.completed` for edits and variations), with the bytes in base64.',
  }),
  partial_images: optionalInteger({
    minimum: 0,
    maximum: PARTIAL_IMAGES_MAX,
    default: 0,
    description:
      'The number of `image_generation.partial_image` (or `image_edit.partial_image`) events that a stream has for each image; fewer if the image has fewer steps. With `n` above 1, each event has an `image_index`.',
  }),
}

const PROMPT = Type.String({
  minLength: 1,
  maxLength: PROMPT_LENGTH_MAX,
  description: 'A description of the image.',
})
const STRENGTH = optionalNumber({
  exclusiveMinimum: 0,
  maximum: 1,
  description: 'How much to change the original image; 1 keeps nothing of it.',
})
const STRICT = { additionalProperties: false }

/** The body of `POST /v1/images/generations`. */
export const GENERATION_BODY = Type.Object({ prompt: PROMPT, ...COMMON }, STRICT)
export type GenerationBody = Static<typeof GENERATION_BODY>

/** The texts of the form of `POST /v1/images/edits`. */
export const EDIT_FIELDS = Type.Object({ prompt: PROMPT, strength: STRENGTH, ...COMMON }, STRICT)
/** The whole form. */
export const EDIT_FORM = Type.Object(
  { image: BINARY, mask: Type.Optional(BINARY), ...EDIT_FIELDS.properties },
  STRICT,
)

/** The texts of the form of `POST /v1/images/variations`. */
export const VARIATION_FIELDS = Type.Object({ strength: STRENGTH, ...COMMON }, STRICT)
/** The whole form. */
export const VARIATION_FORM = Type.Object({ image: BINARY, ...VARIATION_FIELDS.properties }, STRICT)

const COMMON_FIELDS = Type.Object(COMMON)
export type ImageFields = Static<typeof COMMON_FIELDS>

/** Known fields that have no effect together with others. */
export function ineffectiveFields(fields: ImageFields): readonly string[] {
  const isLossless = (fields.output_format ?? 'png') === 'png'
  const hasNoUse = {
    output_compression: isLossless && typeof fields.output_compression === 'number',
    partial_images: fields.stream !== true && (fields.partial_images ?? 0) > 0,
  }
  return Object.entries(hasNoUse).flatMap(([name, isIgnored]) => (isIgnored ? [name] : []))
}

/** The job input that all image requests share, with every default filled in. */
export function commonInput(fields: ImageFields): Omit<ImageInput, 'task'> {
  const size = fields.size ?? 'auto'
  const [width, height] = (size === 'auto' ? '1024x1024' : size).split('x').map(Number)
  const { steps, guidance_scale: guidanceScale, negative_prompt: negativePrompt } = fields
  const { output_format: format, output_compression: quality } = fields
  const isLossy = typeof format === 'string' && format !== 'png'
  const partialImages = fields.stream === true ? (fields.partial_images ?? 0) : 0
  return {
    n: fields.n ?? 1,
    width: width as number,
    height: height as number,
    seed: fields.seed ?? randomInt(2 ** 32),
    outputPrefix: `${MEDIA_PREFIX}/${randomId('img-')}`,
    ...(isLossy && { format }),
    ...(isLossy && typeof quality === 'number' && { quality }),
    ...(partialImages > 0 && { partialImages }),
    ...(typeof steps === 'number' && { steps }),
    ...(typeof guidanceScale === 'number' && { guidanceScale }),
    ...(typeof negativePrompt === 'string' && { negativePrompt }),
  }
}
