import { Readable } from 'node:stream'

import type { FastifyInstance } from 'fastify'

import { answerWithEvents, type SseSerializer } from '#api/inference/generate.ts'
import { getCapableModel } from '#api/inference/model-route.ts'
import { JOB_ERRORS } from '#api/inference/response-schemas.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import type { JobEvent } from '#api/jobs/observers.ts'
import { type Http, submitJob } from '#api/jobs/run-inference.ts'
import { callerOf } from '#api/v1/request-context.ts'
import type { SpeechAudio } from '#shared/contracts/speech.ts'

import { SPEECH_BODY, SPEECH_TYPES, type SpeechBody, speechInput } from './speech-request.ts'

const BYTES = { schema: { type: 'string', format: 'binary' } }
const SPEECH_RESPONSE = {
  description: 'The speech, sent as it is generated.',
  content: {
    ...Object.fromEntries(Object.values(SPEECH_TYPES).map((type) => [type, BYTES])),
    'text/event-stream': {
      schema: {
        type: 'string',
        description:
          'Server-sent events: `speech.audio.delta` with base64, then one `speech.audio.done`.',
      },
    },
  },
}

/** `POST /audio/speech`. */
export function registerSpeech(app: FastifyInstance, services: InferenceServices): void {
  app.post('/audio/speech', {
    config: { scope: 'audio' },
    schema: {
      operationId: 'createSpeech',
      summary: 'Generate speech from a text',
      tags: ['Audio'],
      security: [{ apiKey: [] }],
      body: SPEECH_BODY,
      response: { 200: SPEECH_RESPONSE, ...JOB_ERRORS },
    },
    handler: (request, reply) => speak({ request, reply }, services),
  })
}

async function speak(http: Http, services: InferenceServices): Promise<unknown> {
  const { request, reply } = http
  const body = request.body as SpeechBody
  const model = await getCapableModel(services, callerOf(request), {
    name: body.model,
    kind: 'speech',
    endpoint: 'v1/audio/speech',
  })
  const job = { kind: 'speech', model, input: speechInput(body), isStream: true } as const
  const { events, timeLeftMs } = submitJob(http, services, job)
  if (body.stream_format === 'sse') {
    const limits = { timeLeftMs, log: services.log }
    await answerWithEvents(reply, events, { serializer: serializeSpeech(), ...limits })
    return reply
  }
  return answerWithBytes(http, events)
}

/** Headers are sent with the first bytes, so that earlier failures are ordinary errors. */
async function answerWithBytes(
  { reply }: Http,
  events: AsyncGenerator<JobEvent<'speech'>>,
): Promise<unknown> {
  const unseen = skipRepeated()
  let type = SPEECH_TYPES.wav
  for (let next = await events.next(); next.done !== true; next = await events.next()) {
    const event = next.value
    if (event.type === 'started') type = SPEECH_TYPES[event.speechFormat ?? 'wav']
    if (event.type !== 'progress' || event.audio === undefined) continue
    const first = unseen(event.audio)
    return reply
      .type(type)
      .send(Readable.from(bytesOf(first, events, unseen), { objectMode: false }))
  }
  throw new Error('the speech has no bytes')
}

async function* bytesOf(
  first: Buffer,
  events: AsyncGenerator<JobEvent<'speech'>>,
  unseen: (audio: SpeechAudio) => Buffer,
): AsyncGenerator<Buffer> {
  yield first
  for await (const event of events) {
    if (event.type !== 'progress' || event.audio === undefined) continue
    const bytes = unseen(event.audio)
    if (bytes.length > 0) yield bytes
  }
}

/** A worker that replaces a lost one starts from the beginning: bytes already sent are skipped. */
function skipRepeated(): (audio: SpeechAudio) => Buffer {
  let sent = 0
  return ({ offset, data }) => {
    const bytes = Buffer.from(data, 'base64').subarray(Math.max(0, sent - offset))
    if (bytes.length > 0) sent = Math.max(sent, offset) + bytes.length
    return bytes
  }
}

/** Writes speech as the events of the API. */
function serializeSpeech(): SseSerializer<'speech'> {
  const unseen = skipRepeated()
  return {
    opening: () => '',
    serialize(event) {
      if (event.type === 'progress' && event.audio !== undefined) {
        const bytes = unseen(event.audio)
        if (bytes.length === 0) return ''
        return sse({ type: 'speech.audio.delta', audio: bytes.toString('base64') })
      }
      if (event.type !== 'result') return ''
      const { promptTokens, completionTokens } = event.usage
      const usage = {
        input_tokens: promptTokens,
        output_tokens: completionTokens,
        total_tokens: promptTokens + completionTokens,
      }
      return sse({ type: 'speech.audio.done', usage })
    },
  }
}

function sse(body: object): string {
  return `data: ${JSON.stringify(body)}\n\n`
}
