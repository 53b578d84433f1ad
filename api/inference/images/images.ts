import type { FastifyInstance } from 'fastify'

import { type Form, missingParameter, readForm } from '#api/http/form.ts'
import { bodyUnchecked, reportIgnored } from '#api/http/validation.ts'
import { parseFields } from '#api/inference/form-fields.ts'
import { answerWithEvents } from '#api/inference/generate.ts'
import { answerOrStream, JOB_ERRORS } from '#api/inference/response-schemas.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import { type Http, runJob, submitJob } from '#api/jobs/run-inference.ts'
import { TemporaryObjects } from '#api/jobs/temporary-objects.ts'
import { callerOf } from '#api/v1/request-context.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import type { ImageInput } from '#shared/contracts/image.ts'
import { failure } from '#shared/errors.ts'

import { answerImages, getImageModel, IMAGES_RESPONSE, serializeImages } from './image-answer.ts'
import {
  commonInput,
  EDIT_FIELDS,
  EDIT_FORM,
  GENERATION_BODY,
  type GenerationBody,
  type ImageFields,
  ineffectiveFields,
  VARIATION_FIELDS,
  VARIATION_FORM,
} from './image-request.ts'
import { checkMask, inspectImage, receiveImage } from './uploaded-image.ts'

// The limit of two images and the text fields of a form.
const FORM_BYTES_MAX = 16 * 1024 * 1024

const COMMON = {
  tags: ['Images'],
  security: [{ apiKey: [] }],
  response: { 200: answerOrStream('The images.', IMAGES_RESPONSE), ...JOB_ERRORS },
}

/** `POST /images/generations`. */
export function registerImageGenerations(app: FastifyInstance, services: InferenceServices): void {
  app.post('/images/generations', {
    config: { scope: 'images' },
    schema: {
      operationId: 'createImage',
      summary: 'Generate images from a description',
      ...COMMON,
      body: GENERATION_BODY,
    },
    handler: (request, reply) => generateImages({ request, reply }, services),
  })
}

/** `POST /images/edits` and `POST /images/variations`; the scope must be able to read forms. */
export function registerImageForms(app: FastifyInstance, services: InferenceServices): void {
  app.post('/images/edits', {
    config: { scope: 'images' },
    schema: {
      operationId: 'createImageEdit',
      summary: 'Edit the transparent areas of an image',
      ...COMMON,
      consumes: ['multipart/form-data'],
      body: EDIT_FORM,
    },
    validatorCompiler: bodyUnchecked(app),
    handler: (request, reply) => editImage({ request, reply }, services),
  })
  app.post('/images/variations', {
    config: { scope: 'images' },
    schema: {
      operationId: 'createImageVariation',
      summary: 'Generate variations of an image',
      ...COMMON,
      consumes: ['multipart/form-data'],
      body: VARIATION_FORM,
    },
    validatorCompiler: bodyUnchecked(app),
    handler: (request, reply) => varyImage({ request, reply }, services),
  })
}

async function generateImages(http: Http, services: InferenceServices): Promise<object> {
  const fields = http.request.body as GenerationBody
  const model = await getImageModel(
    services,
    callerOf(http.request),
    fields,
    'v1/images/generations',
  )
  const input = { ...commonInput(fields), task: 'generate', prompt: fields.prompt } as const
  return draw(http, services, { model, input, fields })
}

/** Runs the job and answers with its images, whole or as a stream. */
async function draw(
  http: Http,
  services: InferenceServices,
  job: {
    readonly model: CatalogueModel
    readonly input: ImageInput
    readonly fields: ImageFields
  },
): Promise<object> {
  const { model, input, fields } = job
  reportIgnored(http.request, ineffectiveFields(fields))
  if (fields.stream !== true) {
    const { result } = await runJob(http, services, { kind: 'image', model, input })
    return answerImages(http, services, { fields, imageKeys: result.imageKeys })
  }
  const kind = input.task === 'generate' ? 'image_generation' : 'image_edit'
  const submitted = { kind: 'image', model, input, isStream: true } as const
  const { events, timeLeftMs } = submitJob(http, services, submitted)
  const serializer = serializeImages(services, fields, kind)
  await answerWithEvents(http.reply, events, { serializer, timeLeftMs, log: services.log })
  return http.reply
}

async function editImage(http: Http, services: InferenceServices): Promise<object> {
  const form = await readImages(http, EDIT_FIELDS, ['image', 'mask'])
  const fields = parseFields(http.request, EDIT_FIELDS, form.fields)
  const model = await getImageModel(services, callerOf(http.request), fields, 'v1/images/edits')
  const image = await inspectImage(imageOf(form), 'image')
  const { mask } = form.files
  if (mask !== undefined) checkMask(image, await inspectImage(mask, 'mask'))
  return withTemporary(http, services, async (temporary) => {
    const { key: imageKey } = await temporary.put(image.bytes)
    const maskKey = mask === undefined ? undefined : (await temporary.put(mask)).key
    const input = {
      ...commonInput(fields),
      task: 'edit',
      prompt: fields.prompt,
      imageKey,
      ...(maskKey !== undefined && { maskKey }),
      ...(typeof fields.strength === 'number' && { strength: fields.strength }),
    } as const
    return draw(http, services, { model, input, fields })
  })
}

async function varyImage(http: Http, services: InferenceServices): Promise<object> {
  const form = await readImages(http, VARIATION_FIELDS, ['image'])
  const fields = parseFields(http.request, VARIATION_FIELDS, form.fields)
  const model = await getImageModel(
    services,
    callerOf(http.request),
    fields,
    'v1/images/variations',
  )
  const image = await inspectImage(imageOf(form), 'image')
  return withTemporary(http, services, async (temporary) => {
    const { key: imageKey } = await temporary.put(image.bytes)
    const input = {
      ...commonInput(fields),
      task: 'variation',
      imageKey,
      ...(typeof fields.strength === 'number' && { strength: fields.strength }),
    } as const
    return draw(http, services, { model, input, fields })
  })
}

function readImages(
  { request }: Http,
  schema: { readonly properties: object },
  files: readonly string[],
): Promise<Form<Buffer>> {
  return readForm(request, {
    fields: Object.keys(schema.properties),
    files,
    firstOnly: ['image'],
    bytesMax: FORM_BYTES_MAX,
    tooLarge: (bytes) =>
      failure.tooLarge(
        `413: Maximum content size limit (${FORM_BYTES_MAX}) exceeded (${bytes} bytes read)`,
        { openaiType: 'server_error' },
      ),
    receive: ({ stream }, name) => receiveImage(stream, name),
  })
}

function imageOf({ files }: Form<Buffer>): Buffer {
  if (files.image === undefined) throw missingParameter('image')
  return files.image
}

async function withTemporary<Answer>(
  { request }: Http,
  services: InferenceServices,
  use: (temporary: TemporaryObjects) => Promise<Answer>,
): Promise<Answer> {
  const temporary = new TemporaryObjects(services, callerOf(request).organizationId)
  try {
    return await use(temporary)
  } finally {
    await temporary.discard()
  }
}
