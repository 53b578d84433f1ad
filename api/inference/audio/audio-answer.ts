import type { AudioInput, AudioResult } from '#shared/contracts/audio.ts'

import { languageName } from './languages.ts'
import { subRip, webVtt } from './subtitles.ts'

/** The formats of a transcript. */
export const AUDIO_FORMATS = ['json', 'text', 'srt', 'verbose_json', 'vtt'] as const
export type AudioFormat = (typeof AUDIO_FORMATS)[number]

/** The timestamp granularities of a verbose answer. */
export type Granularity = 'word' | 'segment'

/** A transcript as it is sent: text as plain text, everything else as JSON. */
export type AudioAnswer =
  | { readonly type: 'json'; readonly body: object }
  | { readonly type: 'text'; readonly body: string }

/** Presents a transcript in the requested format. */
export function presentAudio(
  result: AudioResult,
  asked: {
    readonly task: AudioInput['task']
    readonly format: AudioFormat
    readonly granularities: readonly Granularity[]
  },
): AudioAnswer {
  const text = result.text.trim()
  switch (asked.format) {
    case 'json':
      return { type: 'json', body: { text, ...logprobsOf(result), usage: usageOf(result) } }
    case 'text':
      return { type: 'text', body: `${text}\n` }
    case 'srt':
      return { type: 'text', body: subRip(result.segments) }
    case 'vtt':
      return { type: 'text', body: webVtt(result.segments) }
    case 'verbose_json':
      return { type: 'json', body: presentVerbose(result, asked) }
  }
}

function presentVerbose(
  result: AudioResult,
  { task, granularities }: { task: AudioInput['task']; granularities: readonly Granularity[] },
): object {
  // A model without word times ignores the request for them: segments are the default.
  const isTimed = granularities.includes('word') && result.words !== undefined
  return {
    task,
    // A translation is always into English.
    language: task === 'translate' ? 'english' : languageName(result.language),
    duration: result.durationSeconds,
    text: result.text.trim(),
    ...((granularities.includes('segment') || !isTimed) && {
      segments: result.segments.map((segment, id) => ({
        id,
        seek: segment.seekFrames,
        start: segment.start,
        end: segment.end,
        text: segment.text,
        tokens: segment.tokenIds,
        temperature: segment.temperature,
        avg_logprob: segment.averageLogprob,
        compression_ratio: segment.compressionRatio,
        no_speech_prob: segment.noSpeechProbability,
      })),
    }),
    ...(isTimed && { words: result.words }),
    usage: usageOf(result),
  }
}

/** The log-probabilities of a whole transcript or a part of it, if they were requested. */
export function logprobsOf({ logprobs }: Pick<AudioResult, 'logprobs'>): object {
  if (logprobs === undefined) return {}
  return { logprobs: logprobs.map(({ token, bytes, logprob }) => ({ token, bytes, logprob })) }
}

function usageOf({ durationSeconds }: AudioResult): object {
  return { type: 'duration', seconds: Math.ceil(durationSeconds) }
}

const NUMBER = { type: 'number' }

/** The answers of the audio endpoints. */
export const AUDIO_RESPONSE = {
  description: 'The transcript.',
  content: {
    'application/json': {
      schema: {
        type: 'object',
        required: ['text'],
        properties: {
          text: { type: 'string' },
          task: { type: 'string' },
          language: {
            type: 'string',
            description: 'The English name of the language in lower case.',
          },
          duration: { type: 'number', description: 'The duration in seconds.' },
          segments: {
            type: 'array',
            items: {
              type: 'object',
              properties: { id: { type: 'integer' }, start: NUMBER, end: NUMBER },
            },
          },
          words: {
            type: 'array',
            items: {
              type: 'object',
              required: ['word', 'start', 'end'],
              properties: { word: { type: 'string' }, start: NUMBER, end: NUMBER },
            },
          },
          logprobs: {
            type: 'array',
            description: 'Present with `include[]=logprobs`.',
            items: {
              type: 'object',
              properties: {
                token: { type: 'string' },
                bytes: { type: 'array', items: { type: 'integer' } },
                logprob: NUMBER,
              },
            },
          },
          usage: { type: 'object' },
        },
      },
    },
    'text/plain': { schema: { type: 'string' } },
    'text/event-stream': {
      schema: {
        description:
          'Server-sent events: `transcript.text.delta`, then one `transcript.text.done` with `usage`. Both carry `logprobs` on request.',
      },
    },
  },
}
