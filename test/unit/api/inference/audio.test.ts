import { readdir, readFile } from 'node:fs/promises'
import { request as httpRequest, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import type { AudioInput } from '#shared/contracts/audio.ts'

import { type AudioSurface, clip, MODEL, openAudioSurface, WAV } from './audio-surface.ts'
import { formBody, type Part } from './forms.ts'
import { API_KEY, answering, type Script } from './surface.ts'

const CLIPS = join(import.meta.dirname, '../../../fixtures/audio')
const SEGMENT = {
  seekFrames: 0,
  start: 0,
  end: 1.5,
  text: ' Hello there.',
  tokenIds: [1, 2],
  temperature: 0,
  averageLogprob: -0.25,
  compressionRatio: 1.1,
  noSpeechProbability: 0.01,
}
const RESULT = {
  text: ' Hello there.',
  language: 'de',
  durationSeconds: 1.52,
  segments: [SEGMENT],
  words: [{ word: 'Hello', start: 0, end: 0.5 }],
}
const LOGPROBS = [{ token: ' Hello', bytes: [...Buffer.from(' Hello')], logprob: -0.25 }]
const USAGE = { type: 'duration', seconds: 2 }

let audio: AudioSurface
let received = Buffer.alloc(0)

beforeAll(async () => {
  audio = await openAudioSurface(
    (store): Script =>
      async function* (request) {
        const { body } = await store.get((request.input as unknown as AudioInput).audioKey)
        received = Buffer.concat(await Array.fromAsync(body))
        const { logprobs } = request.input as unknown as AudioInput
        yield* answering({ ...RESULT, ...(logprobs === true && { logprobs: LOGPROBS }) })(request)
      },
  )
})
afterAll(() => audio.close())

const submitted = () => audio.surface.submitter.requests.at(-1)?.input as unknown as AudioInput

describe('POST /v1/audio/transcriptions', () => {
  it('answers the text, and keeps the recording no longer than its job', async () => {
    const response = await audio.post([clip(), MODEL])
    expect(response.json()).toEqual({ text: 'Hello there.', usage: USAGE })
    expect(received.equals(WAV)).toBe(true)
    expect(await audio.leftovers()).toEqual([])
    expect(submitted()).toEqual({
      task: 'transcribe',
      audioKey: expect.stringMatching(/^temporary\//),
      filename: 'a.wav',
      language: null,
      prompt: '',
      temperature: 0,
      wordTimestamps: false,
    })
  })

  it('hands every parameter to the worker, texts first or last', async () => {
    const texts: Part[] = [
      ['language', 'DE'],
      ['prompt', 'Guten'],
      ['temperature', '0.4'],
      ['response_format', 'verbose_json'],
      ['timestamp_granularities[]', 'word'],
    ]
    const expected = { language: 'de', prompt: 'Guten', temperature: 0.4, wordTimestamps: true }
    expect((await audio.post([clip(), MODEL, ...texts])).statusCode).toBe(200)
    expect(submitted()).toMatchObject(expected)
    expect((await audio.post([...texts, MODEL, clip()])).statusCode).toBe(200)
    expect(submitted()).toMatchObject(expected)
  })

  it('answers log-probabilities on request', async () => {
    const response = await audio.post([clip(), MODEL, ['include[]', 'logprobs']])
    expect(response.json()).toEqual({ text: 'Hello there.', logprobs: LOGPROBS, usage: USAGE })
    expect(submitted()).toMatchObject({ logprobs: true })
  })

  const AUTO = { threshold: 0.5, prefixPaddingMs: 300, silenceDurationMs: 200 }
  it.each([
    ['a word', [['chunking_strategy', 'auto']], AUTO],
    [
      'JSON',
      [['chunking_strategy', '{"type":"server_vad","threshold":0.2,"prefix_padding_ms":50}']],
      { ...AUTO, threshold: 0.2, prefixPaddingMs: 50 },
    ],
    [
      'fields',
      [
        ['chunking_strategy[type]', 'server_vad'],
        ['chunking_strategy[silence_duration_ms]', '700'],
      ],
      { ...AUTO, silenceDurationMs: 700 },
    ],
  ] as [string, Part[], object][])(
    'hands over how silence is skipped, written as %s',
    async (_form, parts, expected) => {
      expect((await audio.post([clip(), MODEL, ...parts])).statusCode).toBe(200)
      expect(submitted().voiceActivity).toEqual(expected)
    },
  )

  it('reads hotwords before the prompt', async () => {
    await audio.post([clip(), MODEL, ['hotwords', 'Millrace, ONNX'], ['prompt', 'On queues']])
    expect(submitted()).toMatchObject({ prompt: 'Millrace, ONNX On queues' })
    await audio.post([clip(), MODEL, ['hotwords', 'Millrace']])
    expect(submitted()).toMatchObject({ prompt: 'Millrace' })
  })

  it('reads keywords as hotwords', async () => {
    const keywords: Part[] = ['Millrace', 'ONNX'].map((word) => ['keywords[]', word])
    await audio.post([clip(), MODEL, ...keywords, ['prompt', 'On queues']])
    expect(submitted()).toMatchObject({ prompt: 'Millrace, ONNX On queues' })
  })

  it.each<[string, string[], object]>([
    ['one language as the language', ['de'], { language: 'de' }],
    ['several as those to detect', ['de', 'en'], { language: null, among: ['de', 'en'] }],
  ])('reads %s', async (_reading, codes, expected) => {
    const languages = codes.map((code): Part => ['languages[]', code])
    expect((await audio.post([clip(), MODEL, ...languages])).statusCode).toBe(200)
    expect(submitted()).toMatchObject(expected)
    await audio.post([clip(), MODEL, ...languages, ['language', 'fr']])
    expect(submitted().language).toBe('fr')
  })

  it('refuses a language that does not exist, among others', async () => {
    const languages: Part[] = ['de', 'xx-none'].map((code) => ['languages[]', code])
    const answer = await audio.post([clip(), MODEL, ...languages])
    expect(answer.statusCode).toBe(400)
    expect(answer.json().error).toMatchObject({ param: 'languages[1]' })
  })

  it.each([
    ['text', 'Hello there.\n'],
    ['srt', '1\n00:00:00,000 --> 00:00:01,500\nHello there.\n\n'],
    ['vtt', 'WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello there.\n\n'],
  ])('answers %s as plain text', async (format, body) => {
    const response = await audio.post([clip(), MODEL, ['response_format', format]])
    expect(response.headers['content-type']).toBe('text/plain; charset=utf-8')
    expect(response.body).toBe(body)
  })

  const WORDS: Part = ['timestamp_granularities[]', 'word']
  const VERBOSE: Part = ['response_format', 'verbose_json']
  const HEAD = { task: 'transcribe', language: 'german', duration: 1.52, text: 'Hello there.' }
  const segments = [
    {
      id: 0,
      seek: 0,
      start: 0,
      end: 1.5,
      text: ' Hello there.',
      tokens: [1, 2],
      temperature: 0,
      avg_logprob: -0.25,
      compression_ratio: 1.1,
      no_speech_prob: 0.01,
    },
  ]
  it.each([
    [[], { segments }],
    [[['timestamp_granularities[]', 'segment']], { segments }],
    [[WORDS], { words: RESULT.words }],
    [
      [
        ['timestamp_granularities', 'word'],
        ['timestamp_granularities', 'segment'],
      ],
      { segments, words: RESULT.words },
    ],
  ] as [Part[], object][])('answers verbosely with %j', async (parts, timed) => {
    const response = await audio.post([clip(), MODEL, VERBOSE, ...parts])
    expect(response.json()).toEqual({ ...HEAD, ...timed, usage: USAGE })
  })

  it('answers segments if the model times no words', async () => {
    const untimed = await openAudioSurface(() => {
      const { words: _, ...result } = RESULT
      return answering(result)
    })
    const response = await untimed.post([clip(), MODEL, VERBOSE, WORDS])
    expect(response.json()).toEqual({ ...HEAD, segments, usage: USAGE })
    await untimed.close()
  })

  it.each([
    ['blob', 'en-1.wav'],
    ['blob', 'en-2.flac'],
    ['recording', 'en-3.opus'],
    ['', 'en-4.mp3'],
  ])('knows by its content what the file %o is: %s', async (filename, name) => {
    const bytes = await readFile(join(CLIPS, name))
    expect((await audio.post([clip(bytes, filename), MODEL])).statusCode).toBe(200)
  })

  it.each(['tiny-chat', 'nope'])('does not listen with %s', async (model) => {
    expect((await audio.post([clip(), ['model', model]])).statusCode).toBe(404)
    expect(await audio.leftovers()).toEqual([])
  })
})

describe('POST /v1/audio/translations', () => {
  it('is always English and needs no language', async () => {
    const verbose: Part = ['response_format', 'verbose_json']
    const response = await audio.post([clip(), MODEL, verbose], 'translations')
    expect(response.json()).toMatchObject({ task: 'translate', language: 'english' })
    expect(submitted().task).toBe('translate')
    const refused = await audio.post([clip(), MODEL, ['language', 'de']], 'translations')
    expect(refused.json().error).toMatchObject({ param: 'language', code: 'unknown_parameter' })
  })
})

describe('a body over 25 MB', () => {
  const LIMIT = 26_214_400

  it('is refused by its announced length before it is read', async () => {
    const response = await audio.post([clip(Buffer.alloc(LIMIT)), MODEL])
    expect(response.statusCode).toBe(413)
    const { error } = response.json()
    expect(error).toMatchObject({ type: 'server_error', param: null, code: null })
    expect(error.message).toMatch(
      /^413: Maximum content size limit \(26214400\) exceeded \(\d+ bytes read\)$/,
    )
  })

  it('is refused while it is read if it announces no length, and stores nothing', async () => {
    await audio.surface.app.listen({ port: 0, host: '127.0.0.1' })
    const body = formBody([MODEL, clip(Buffer.alloc(LIMIT + 1000))])
    const status = await new Promise((resolve, reject) => {
      const asked = openUpload((response) => resolve(response.statusCode))
      asked.on('error', reject)
      asked.end(body)
    })
    expect(status).toBe(413)
    await expect.poll(audio.leftovers).toEqual([])
  })

  it('stores nothing if the client disconnects', async () => {
    const { length } = audio.surface.submitter.requests
    const asked = openUpload(() => {})
    asked.on('error', () => {})
    asked.write(formBody([MODEL, clip()]).subarray(0, 30_000))
    const staged = () => readdir(join(audio.folder, '.staging'))
    await expect.poll(staged).toHaveLength(1)
    asked.destroy()
    await expect.poll(staged).toEqual([])
    expect(await audio.leftovers()).toEqual([])
    expect(audio.surface.submitter.requests).toHaveLength(length)
  })

  function openUpload(onAnswer: (response: IncomingMessage) => void) {
    const { port } = audio.surface.app.server.address() as AddressInfo
    return httpRequest(
      {
        port,
        method: 'POST',
        path: '/v1/audio/transcriptions',
        headers: {
          authorization: `Bearer ${API_KEY}`,
          'content-type': 'multipart/form-data; boundary=boundary-of-the-tests',
        },
      },
      onAnswer,
    )
  }
})
