import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { type AudioSurface, clip, MODEL, openAudioSurface, WAV } from './audio-surface.ts'
import { formBody, type Part } from './forms.ts'

let audio: AudioSurface

beforeAll(async () => {
  audio = await openAudioSurface()
})
afterAll(() => audio.close())

describe('a recording that cannot be transcribed', () => {
  const VERBOSE: Part = ['response_format', 'verbose_json']
  const FORMATS =
    "Invalid file format. Supported formats: ['flac', 'm4a', 'mp3', 'mp4', 'mpeg', 'mpga', 'oga', 'ogg', 'wav', 'webm']"
  const rows: [string, Part[], string | null, string, RegExp | string][] = [
    ['no file', [MODEL], 'file', 'missing_required_parameter', /./],
    [
      'no model',
      [clip()],
      'model',
      'missing_required_parameter',
      'you must provide a model parameter',
    ],
    [
      'a name that is not a recording',
      [clip(WAV, 'a.bin'), MODEL],
      'file',
      'invalid_file_format',
      FORMATS,
    ],
    ['the name .opus', [clip(WAV, 'a.opus'), MODEL], 'file', 'invalid_file_format', FORMATS],
    [
      'a nameless text',
      [clip(Buffer.from('hello'), 'blob'), MODEL],
      'file',
      'invalid_file_format',
      FORMATS,
    ],
    ['an empty file', [clip(Buffer.alloc(0)), MODEL], 'file', 'audio_too_short', /too short/],
    [
      'a language that is none',
      [clip(), MODEL, ['language', 'xx']],
      'language',
      'invalid_language_format',
      /ISO-639-1/,
    ],
    [
      'a language by name',
      [clip(), MODEL, ['language', 'english']],
      'language',
      'invalid_language_format',
      /./,
    ],
    [
      'an unknown format',
      [clip(), MODEL, ['response_format', 'xml']],
      'response_format',
      'invalid_value',
      /'json', 'text'/,
    ],
    [
      'a temperature over 1',
      [clip(), MODEL, ['temperature', '1.5']],
      'temperature',
      'decimal_above_max_value',
      /./,
    ],
    [
      'a temperature in words',
      [clip(), MODEL, ['temperature', 'hot']],
      'temperature',
      'invalid_type',
      /./,
    ],
    [
      'timestamps in plain JSON',
      [clip(), MODEL, ['timestamp_granularities[]', 'word']],
      'timestamp_granularities',
      'invalid_value',
      /verbose_json/,
    ],
    [
      'unknown timestamps',
      [clip(), MODEL, VERBOSE, ['timestamp_granularities[]', 'line']],
      'timestamp_granularities[0]',
      'invalid_value',
      /./,
    ],
    [
      'a stream with times',
      [clip(), MODEL, VERBOSE, ['stream', 'true']],
      'stream',
      'invalid_value',
      /not allowed with the response_format 'verbose_json'/,
    ],
    [
      'log-probabilities in a format without a place for them',
      [clip(), MODEL, VERBOSE, ['include[]', 'logprobs']],
      'include',
      'invalid_value',
      /only allowed with the response_format 'json'/,
    ],
    [
      'something else to include',
      [clip(), MODEL, ['include[]', 'usage']],
      'include[0]',
      'invalid_value',
      /./,
    ],
    [
      'an unknown strategy for chunks',
      [clip(), MODEL, ['chunking_strategy', 'manual']],
      'chunking_strategy',
      'invalid_value',
      /./,
    ],
    [
      'a strategy that is not JSON',
      [clip(), MODEL, ['chunking_strategy', '{"type"']],
      'chunking_strategy',
      'invalid_value',
      /not JSON/,
    ],
    [
      'a strategy in two forms',
      [clip(), MODEL, ['chunking_strategy', 'auto'], ['chunking_strategy[type]', 'server_vad']],
      'chunking_strategy',
      'invalid_value',
      /in parts/,
    ],
    [
      'an unknown key of a strategy',
      [clip(), MODEL, ['chunking_strategy', '{"type":"server_vad","treshold":0.5}']],
      'chunking_strategy.treshold',
      'unknown_parameter',
      /Did you mean 'chunking_strategy.threshold'/,
    ],
    [
      'a threshold over 1',
      [clip(), MODEL, ['chunking_strategy', '{"type":"server_vad","threshold":2}']],
      'chunking_strategy.threshold',
      'decimal_above_max_value',
      /./,
    ],
    ['an unknown text', [clip(), MODEL, ['speed', '2']], 'speed', 'unknown_parameter', /./],
    ['two files', [clip(), clip(), MODEL], 'file', 'duplicate_parameter', /./],
    ['a text as file', [['file', 'x'], MODEL], 'file', 'invalid_type', /./],
  ]
  it.each(rows)('refuses %s', async (_title, parts, param, code, message) => {
    const { length } = audio.surface.submitter.requests
    const response = await audio.post(parts)
    expect(response.statusCode).toBe(400)
    const { error } = response.json()
    expect(error).toMatchObject({ param, code, type: 'invalid_request_error' })
    if (typeof message === 'string') expect(error.message).toBe(message)
    else expect(error.message).toMatch(message)
    expect(audio.surface.submitter.requests).toHaveLength(length)
    expect(await audio.leftovers()).toEqual([])
  })

  it('refuses a form that breaks off, and stores nothing', async () => {
    const response = await audio.post(formBody([MODEL, clip()]).subarray(0, 20_000))
    expect([response.statusCode, response.json().error.type]).toEqual([
      400,
      'invalid_request_error',
    ])
    expect(await audio.leftovers()).toEqual([])
  })
})
