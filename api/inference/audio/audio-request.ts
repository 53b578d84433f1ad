import { extname } from 'node:path'

import type { Static } from 'typebox'

import {
  invalidValue,
  optionalBoolean,
  optionalEnum,
  optionalInteger,
  optionalNumber,
  optionalString,
} from '#api/inference/field-schemas.ts'
import { type AudioFormat, detectAudioFormat } from '#shared/audio-format.ts'
import type { AudioInput, VoiceActivitySettings } from '#shared/contracts/audio.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import { Type } from '#shared/schema-types.ts'
import { choice, nullable } from '#shared/schemas.ts'

import { AUDIO_FORMATS, type Granularity } from './audio-answer.ts'
import { languageCode } from './languages.ts'

/** The limit of the whole form, as clients of this API know it. */
export const AUDIO_FORM_BYTES_MAX = 26_214_400
const PROMPT_LENGTH_MAX = 16_384

const EXTENSIONS = ['flac', 'm4a', 'mp3', 'mp4', 'mpeg', 'mpga', 'oga', 'ogg', 'wav', 'webm']
/** The signatures of the accepted file types. */
const SIGNATURES: ReadonlySet<AudioFormat | undefined> = new Set<AudioFormat>([
  'flac',
  'mp4',
  'mp3',
  'ogg',
  'wav',
  'webm',
])

const KEYWORDS_MAX = 128
const KEYWORD_LENGTH_MAX = 256
const LANGUAGES_MAX = 32

const MILLISECONDS_MAX = 10_000
const SERVER_VAD = Type.Object(
  {
    type: choice(['server_vad']),
    threshold: optionalNumber({ minimum: 0, maximum: 1, default: 0.5 }),
    prefix_padding_ms: optionalInteger({ minimum: 0, maximum: MILLISECONDS_MAX, default: 300 }),
    silence_duration_ms: optionalInteger({ minimum: 0, maximum: MILLISECONDS_MAX, default: 200 }),
  },
  { additionalProperties: false },
)

const COMMON = {
  model: Type.String({ minLength: 1, description: 'The id of a model.' }),
  prompt: optionalString({
    maxLength: PROMPT_LENGTH_MAX,
    description: 'Text that precedes the recording; it guides style and the spelling of names.',
  }),
  hotwords: optionalString({
    maxLength: PROMPT_LENGTH_MAX,
    description: 'Names and words to expect; they are placed before the prompt.',
  }),
  keywords: Type.Optional(
    Type.Array(Type.String({ maxLength: KEYWORD_LENGTH_MAX }), {
      maxItems: KEYWORDS_MAX,
      description: 'The same as a list.',
    }),
  ),
  response_format: optionalEnum(AUDIO_FORMATS, {
    default: 'json',
    description: 'The format of the transcript.',
  }),
  temperature: optionalNumber({
    minimum: 0,
    maximum: 1,
    default: 0,
    description:
      'The sampling temperature. With 0, the server raises it where the most likely words make no sense.',
  }),
  stream: optionalBoolean({
    default: false,
    description: 'Stream the text as it is recognized. Only with the formats `json` and `text`.',
  }),
  chunking_strategy: Type.Optional(
    Type.Union([nullable(choice(['auto'])), SERVER_VAD], {
      description:
        'Skip silence: `auto`, or settings as JSON or as fields `chunking_strategy[…]`. Without a model that detects speech, the field is ignored and reported in the answer.',
    }),
  ),
}
const STRICT = { additionalProperties: false }
const FILE = Type.String({ format: 'binary', description: 'A recording of up to 25 MB.' })

/** The texts of the form of `POST /v1/audio/transcriptions`. */
export const TRANSCRIPTION_FIELDS = Type.Object(
  {
    ...COMMON,
    language: optionalString({
      description: 'The ISO 639-1 code of the language; detected if absent.',
    }),
    languages: Type.Optional(
      Type.Array(Type.String(), {
        maxItems: LANGUAGES_MAX,
        description: 'The languages of which one is detected; all that the model knows if absent.',
      }),
    ),
    include: Type.Optional(
      Type.Array(choice(['logprobs']), {
        maxItems: 8,
        description:
          'Add the log-probabilities of the tokens to the `json` answer and to its events.',
      }),
    ),
    timestamp_granularities: Type.Optional(
      Type.Array(choice(['word', 'segment']), {
        minItems: 1,
        maxItems: 8,
        description:
          'The parts that get timestamps: segments or words. Only with `verbose_json`. A model without word timestamps ignores `word`, and the answer reports this.',
      }),
    ),
  },
  STRICT,
)
/** The whole form. */
export const TRANSCRIPTION_FORM = Type.Object(
  { file: FILE, ...TRANSCRIPTION_FIELDS.properties },
  STRICT,
)

/** The texts of the form of `POST /v1/audio/translations`. */
export const TRANSLATION_FIELDS = Type.Object(COMMON, STRICT)
/** The whole form. */
export const TRANSLATION_FORM = Type.Object({ file: FILE, ...COMMON }, STRICT)

export type TranscriptionFields = Static<typeof TRANSCRIPTION_FIELDS>

/**
 * The language of a request, or those among which it is detected: all if absent. Throws when no
 * model can support them.
 */
export function languagesOf({
  language,
  languages = [],
}: Pick<TranscriptionFields, 'language' | 'languages'>): Pick<AudioInput, 'language' | 'among'> {
  if (language) return { language: codeOf(language, 'language') }
  const codes = languages.map((one, index) => codeOf(one, `languages[${index}]`))
  const [only, ...others] = codes
  if (only === undefined) return { language: null }
  return others.length === 0 ? { language: only } : { language: null, among: codes }
}

function codeOf(language: string, param: string): string {
  const code = languageCode(language)
  if (code !== undefined) return code
  throw failure.invalidRequest(
    `Invalid language '${language.slice(0, 32)}'. Language parameter must be specified in ISO-639-1 format.`,
    { param, code: 'invalid_language_format' },
  )
}

/** The words that precede a recording: those to expect, then the text before it. */
export function precedingText({
  hotwords,
  keywords = [],
  prompt,
}: Pick<TranscriptionFields, 'hotwords' | 'keywords' | 'prompt'>): string {
  return [hotwords, keywords.join(', '), prompt].filter(Boolean).join(' ')
}

/** The requested timestamps. Throws when the format cannot hold them. */
export function granularitiesOf(
  fields: Pick<TranscriptionFields, 'response_format' | 'timestamp_granularities'>,
): readonly Granularity[] {
  const asked = fields.timestamp_granularities
  if (asked === undefined) return ['segment']
  if (fields.response_format === 'verbose_json') return asked
  throw failure.invalidRequest(
    "The 'timestamp_granularities' parameter is only allowed with the response_format 'verbose_json'.",
    { param: 'timestamp_granularities', code: 'invalid_value' },
  )
}

/** Whether log-probabilities are requested. Throws when the format cannot hold them. */
export function wantsLogprobs(
  fields: Pick<TranscriptionFields, 'response_format' | 'include'>,
): boolean {
  if (fields.include?.includes('logprobs') !== true) return false
  if ((fields.response_format ?? 'json') === 'json') return true
  throw failure.invalidRequest(
    "The 'include' parameter is only allowed with the response_format 'json'.",
    { param: 'include', code: 'invalid_value' },
  )
}

const STRATEGY = 'chunking_strategy'

/** The form fields in which clients write the settings one by one. */
export const STRATEGY_FIELDS: readonly string[] = Object.keys(SERVER_VAD.properties).map(
  (name) => `${STRATEGY}[${name}]`,
)

/** Joins settings written as separate fields, and parses those written as JSON. */
export function gatherStrategy(
  fields: Readonly<Record<string, string | string[]>>,
): Readonly<Record<string, unknown>> {
  const own = Object.entries(fields).filter(([name]) => STRATEGY_FIELDS.includes(name))
  const rest = Object.fromEntries(
    Object.entries(fields).filter(([name]) => !STRATEGY_FIELDS.includes(name)),
  )
  const { [STRATEGY]: text } = rest
  if (own.length === 0) {
    return typeof text === 'string' && text.startsWith('{')
      ? { ...rest, [STRATEGY]: parseStrategy(text) }
      : rest
  }
  if (text !== undefined) throw invalidValue(STRATEGY, 'it is there as a whole and in parts.')
  const settings = own.map(([name, text]) => {
    const isNumber = typeof text === 'string' && /^-?\d+(\.\d+)?$/.test(text)
    return [name.slice(STRATEGY.length + 1, -1), isNumber ? Number(text) : text] as const
  })
  return { ...rest, [STRATEGY]: Object.fromEntries(settings) }
}

function parseStrategy(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw invalidValue(STRATEGY, 'it is not JSON.')
  }
}

/** How silence is skipped, or undefined. */
export function voiceActivityOf({
  chunking_strategy: strategy,
}: Pick<TranscriptionFields, 'chunking_strategy'>): VoiceActivitySettings | undefined {
  if (strategy === undefined || strategy === null) return undefined
  const { threshold, prefix_padding_ms, silence_duration_ms } =
    strategy === 'auto' ? ({} as Partial<Static<typeof SERVER_VAD>>) : strategy
  return {
    threshold: threshold ?? 0.5,
    prefixPaddingMs: prefix_padding_ms ?? 300,
    silenceDurationMs: silence_duration_ms ?? 200,
  }
}

/** Whether the text is streamed. Throws for formats with timestamps. */
export function isStreamed(
  fields: Pick<TranscriptionFields, 'response_format' | 'stream'>,
): boolean {
  if (fields.stream !== true) return false
  const format = fields.response_format ?? 'json'
  if (format === 'json' || format === 'text') return true
  throw failure.invalidRequest(
    `The 'stream' parameter is not allowed with the response_format '${format}'.`,
    { param: 'stream', code: 'invalid_value' },
  )
}

/** Whether a file name has an audio extension. Throws for an extension of another kind. */
export function hasAudioExtension(filename: string): boolean {
  const extension = extname(filename).slice(1).toLowerCase()
  if (extension === '') return false
  if (EXTENSIONS.includes(extension)) return true
  throw invalidFormat()
}

/** Whether the first bytes of a file are those of a recording. */
export function looksLikeAudio(head: Buffer): boolean {
  return SIGNATURES.has(detectAudioFormat(head))
}

/** The refusal of a file that is not a recording of a known kind. */
export function invalidFormat(): ServiceError {
  const names = EXTENSIONS.map((name) => `'${name}'`).join(', ')
  return failure.invalidRequest(`Invalid file format. Supported formats: [${names}]`, {
    param: 'file',
    code: 'invalid_file_format',
  })
}

/** The refusal of a form that is too large; its type is what clients of this API know. */
export function audioTooLarge(bytes: number): ServiceError {
  return failure.tooLarge(
    `413: Maximum content size limit (${AUDIO_FORM_BYTES_MAX}) exceeded (${bytes} bytes read)`,
    { openaiType: 'server_error' },
  )
}
