import { Readable } from 'node:stream'

import type { FastifyInstance, FastifyReply } from 'fastify'

import { type Form, type FormFile, missingParameter, readForm } from '#api/http/form.ts'
import { bodyUnchecked } from '#api/http/validation.ts'
import { parseFields } from '#api/inference/form-fields.ts'
import { answerWithEvents } from '#api/inference/generate.ts'
import { getCapableModel } from '#api/inference/model-route.ts'
import { JOB_ERRORS } from '#api/inference/response-schemas.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import {
  clientSignal,
  type Http,
  type RequestJob,
  runJob,
  submitJob,
} from '#api/jobs/run-inference.ts'
import { TemporaryObjects } from '#api/jobs/temporary-objects.ts'
import { callerOf } from '#api/v1/request-context.ts'
import type { AudioInput } from '#shared/contracts/audio.ts'
import { CancelledError, failure } from '#shared/errors.ts'

import { AUDIO_RESPONSE, type AudioAnswer, presentAudio } from './audio-answer.ts'
import {
  AUDIO_FORM_BYTES_MAX,
  audioTooLarge,
  gatherStrategy,
  granularitiesOf,
  hasAudioExtension,
  invalidFormat,
  isStreamed,
  languagesOf,
  looksLikeAudio,
  precedingText,
  STRATEGY_FIELDS,
  TRANSCRIPTION_FIELDS,
  TRANSCRIPTION_FORM,
  TRANSLATION_FIELDS,
  TRANSLATION_FORM,
  type TranscriptionFields,
  voiceActivityOf,
  wantsLogprobs,
} from './audio-request.ts'
import { serializeTranscript } from './audio-stream.ts'

const HEAD_BYTES = 4096
const TASKS = {
  transcribe: { endpoint: 'v1/audio/transcriptions', fields: TRANSCRIPTION_FIELDS },
  translate: { endpoint: 'v1/audio/translations', fields: TRANSLATION_FIELDS },
} as const

const COMMON = {
  tags: ['Audio'],
  security: [{ apiKey: [] }],
  consumes: ['multipart/form-data'],
  response: { 200: AUDIO_RESPONSE, ...JOB_ERRORS },
}

/** `POST /audio/transcriptions` and `/audio/translations`; the scope must be able to read forms. */
export function registerAudio(app: FastifyInstance, services: InferenceServices): void {
  app.post('/audio/transcriptions', {
    config: { scope: 'audio' },
    schema: {
      operationId: 'createTranscription',
      summary: 'Transcribe a recording in its language',
      ...COMMON,
      body: TRANSCRIPTION_FORM,
    },
    validatorCompiler: bodyUnchecked(app),
    handler: (request, reply) => listen({ request, reply }, services, 'transcribe'),
  })
  app.post('/audio/translations', {
    config: { scope: 'audio' },
    schema: {
      operationId: 'createTranslation',
      summary: 'Translate a recording into English text',
      ...COMMON,
      body: TRANSLATION_FORM,
    },
    validatorCompiler: bodyUnchecked(app),
    handler: (request, reply) => listen({ request, reply }, services, 'translate'),
  })
}

async function listen(
  http: Http,
  services: InferenceServices,
  task: AudioInput['task'],
): Promise<unknown> {
  const temporary = new TemporaryObjects(services, callerOf(http.request).organizationId)
  try {
    const form = await readRecording(http, temporary, task)
    const fields = fieldsOf(http, form, task)
    const granularities = granularitiesOf(fields)
    const wordTimestamps = granularities.includes('word')
    const stream = isStreamed(fields)
    const logprobs = wantsLogprobs(fields)
    const asked = { task, form, fields, wordTimestamps, stream, logprobs }
    const job = await jobOf(http, services, asked)
    if (stream) {
      const { events, timeLeftMs } = submitJob(http, services, { ...job, isStream: true })
      const limits = { timeLeftMs, log: services.log }
      await answerWithEvents(http.reply, events, { serializer: serializeTranscript(), ...limits })
      return http.reply
    }
    const { result } = await runJob(http, services, job)
    const format = fields.response_format ?? 'json'
    return send(http.reply, presentAudio(result, { task, format, granularities }))
  } finally {
    await temporary.discard()
  }
}

interface Recording {
  readonly key: string
  readonly filename: string
}

/** Reads the form and stores its recording in object storage. */
function readRecording(
  http: Http,
  temporary: TemporaryObjects,
  task: AudioInput['task'],
): Promise<Form<Recording>> {
  const signal = clientSignal(http)
  return readForm(http.request, {
    fields: [...Object.keys(TASKS[task].fields.properties), ...STRATEGY_FIELDS],
    lists: ['timestamp_granularities', 'include', 'keywords', 'languages'],
    files: ['file'],
    bytesMax: AUDIO_FORM_BYTES_MAX,
    tooLarge: audioTooLarge,
    receive: (file) => storeRecording(file, temporary, AbortSignal.any([signal, file.signal])),
  })
}

/** The format follows from the file name or, without an extension, from the first bytes. */
async function storeRecording(
  { filename, stream }: FormFile,
  temporary: TemporaryObjects,
  signal: AbortSignal,
): Promise<Recording> {
  const isNamed = hasAudioExtension(filename)
  let head = Buffer.alloc(0)
  async function* watched(): AsyncGenerator<Buffer> {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      if (head.length < HEAD_BYTES) {
        head = Buffer.concat([head, chunk.subarray(0, HEAD_BYTES - head.length)])
      }
      yield chunk
    }
  }
  // The store starts the stream, so no error can occur before `put` reads it.
  const stored = temporary.put(Readable.from(watched()), signal)
  const { key, bytes } = await stored.catch((error: unknown) => {
    throw signal.aborted ? new CancelledError() : error
  })
  if (bytes === 0) {
    throw failure.invalidRequest('Audio file is too short. Minimum audio length is 0.1 seconds.', {
      param: 'file',
      code: 'audio_too_short',
    })
  }
  if (!isNamed && !looksLikeAudio(head)) throw invalidFormat()
  return { key, filename }
}

function fieldsOf(
  { request }: Http,
  { fields, files }: Form<Recording>,
  task: AudioInput['task'],
): TranscriptionFields {
  if (files.file === undefined) throw missingParameter('file')
  if (fields.model === undefined) {
    throw failure.invalidRequest('you must provide a model parameter', {
      param: 'model',
      code: 'missing_required_parameter',
    })
  }
  return parseFields(request, TASKS[task].fields, gatherStrategy(fields))
}

/** The job input of a recording. */
async function jobOf(
  http: Http,
  services: InferenceServices,
  asked: {
    readonly task: AudioInput['task']
    readonly form: Form<Recording>
    readonly fields: TranscriptionFields
    readonly wordTimestamps: boolean
    readonly stream: boolean
    readonly logprobs: boolean
  },
): Promise<RequestJob<'audio'>> {
  const { task, form, fields, wordTimestamps, stream, logprobs } = asked
  const model = await getCapableModel(services, callerOf(http.request), {
    name: fields.model,
    kind: 'audio',
    endpoint: TASKS[task].endpoint,
  })
  const { key, filename } = form.files.file as Recording
  const voiceActivity = voiceActivityOf(fields)
  const input: AudioInput = {
    task,
    audioKey: key,
    filename,
    ...languagesOf(fields),
    prompt: precedingText(fields),
    temperature: fields.temperature ?? 0,
    wordTimestamps,
    ...(stream && { stream }),
    ...(logprobs && { logprobs }),
    ...(voiceActivity !== undefined && { voiceActivity }),
  }
  return { kind: 'audio', model, input }
}

function send(reply: FastifyReply, answer: AudioAnswer): unknown {
  if (answer.type === 'json') return answer.body
  // Sent as bytes, because Fastify would serialize a text as JSON.
  return reply.type('text/plain; charset=utf-8').send(Buffer.from(answer.body))
}
