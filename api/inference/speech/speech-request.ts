import type { Static } from 'typebox'

import { ineffective, optionalEnum, optionalNumber } from '#api/inference/field-schemas.ts'
import { SPEECH_FORMATS, type SpeechFormat, type SpeechInput } from '#shared/contracts/speech.ts'
import { Type } from '#shared/schema-types.ts'

const VOICE_NAME = Type.String({ minLength: 1, maxLength: 200 })

/** The body of `POST /v1/audio/speech`. */
export const SPEECH_BODY = Type.Object(
  {
    model: Type.String({ minLength: 1, description: 'The id of a model.' }),
    input: Type.String({ minLength: 1, maxLength: 4096, description: 'The text to speak.' }),
    voice: Type.Union(
      [VOICE_NAME, Type.Object({ id: VOICE_NAME }, { additionalProperties: false })],
      {
        description:
          'A voice of the model; the voice names of the OpenAI API are mapped to one of them.',
      },
    ),
    response_format: optionalEnum(SPEECH_FORMATS, {
      description:
        'The audio format. If absent, `mp3` if the workers have FFmpeg, otherwise `wav`. All formats except `wav` and `pcm` need FFmpeg.',
    }),
    speed: optionalNumber({
      minimum: 0.25,
      maximum: 4,
      default: 1,
      description: 'The speed of the speech; 1 is the normal speed of the voice.',
    }),
    stream_format: optionalEnum(['audio', 'sse'], {
      default: 'audio',
      description: 'The form of the stream: raw bytes, or server-sent events with base64.',
    }),
    instructions: ineffective({ type: ['string', 'null'], maxLength: 4096 }),
    user: ineffective({ type: ['string', 'null'], maxLength: 512 }),
  },
  { additionalProperties: false },
)
export type SpeechBody = Static<typeof SPEECH_BODY>

/** The media type of each format. */
export const SPEECH_TYPES: Readonly<Record<SpeechFormat, string>> = {
  mp3: 'audio/mpeg',
  opus: 'audio/ogg',
  aac: 'audio/aac',
  flac: 'audio/flac',
  wav: 'audio/wav',
  pcm: 'audio/pcm',
}

/** The job input of a request. */
export function speechInput(body: SpeechBody): SpeechInput {
  return {
    task: 'speak',
    text: body.input,
    voice: typeof body.voice === 'string' ? body.voice : body.voice.id,
    speed: body.speed ?? 1,
    format: body.response_format ?? null,
  }
}
