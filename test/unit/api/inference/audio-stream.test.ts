import { afterAll, beforeAll, expect, it } from 'vitest'

import type { SpokenToken } from '#shared/contracts/audio.ts'
import { failure } from '#shared/errors.ts'

import { type AudioSurface, clip, MODEL, openAudioSurface } from './audio-surface.ts'
import type { Part } from './forms.ts'
import { answering, type Script } from './surface.ts'

const RESULT = { text: ' Hello there.  Bye! ', language: 'en', durationSeconds: 9, segments: [] }
const STREAM: Part = ['stream', 'true']

let audio: AudioSurface
/** The text of each window, with its number; an error ends the job. */
let windows: readonly (
  | readonly [step: number, text?: string, logprobs?: readonly SpokenToken[]]
  | Error
)[] = []
let result: object = RESULT

beforeAll(async () => {
  audio = await openAudioSurface(
    (): Script =>
      async function* (request) {
        const [started, ending] = answering(result, { promptTokens: 0, completionTokens: 7 })(
          request,
        ) as never[]
        yield started as never
        for (const window of windows) {
          if (window instanceof Error) throw window
          const [step, text, logprobs] = window
          const report = { ...(text !== undefined && { text }), ...(logprobs && { logprobs }) }
          yield { type: 'progress', step, steps: 3, ...report }
        }
        yield ending as never
      },
  )
})
afterAll(() => audio.close())

async function streamed(parts: readonly Part[] = [], url?: string) {
  const response = await audio.post([clip(), MODEL, STREAM, ...parts], url)
  expect(response.headers['content-type']).toBe('text/event-stream; charset=utf-8')
  // A stream ends for its reader a moment before its recording is removed.
  await expect.poll(() => audio.leftovers()).toEqual([])
  return response.body
    .split('\n\n')
    .filter((frame) => frame !== '')
    .map((frame) => JSON.parse(frame.replace(/^data: /, '')) as Record<string, unknown>)
}

const delta = (text: string) => ({ type: 'transcript.text.delta', delta: text })
const DONE = {
  type: 'transcript.text.done',
  text: 'Hello there.  Bye!',
  usage: { type: 'tokens', input_tokens: 0, output_tokens: 7, total_tokens: 7 },
}

it('sends the text of every window as it is recognized, and finally the whole text', async () => {
  windows = [
    [1, ' Hello there. '],
    [2, ''],
    [3, ' Bye! '],
  ]
  expect(await streamed()).toEqual([delta('Hello there.'), delta('  Bye!'), DONE])
  expect(await streamed([], 'translations')).toHaveLength(3)
  expect(audio.surface.submitter.requests.at(-1)?.input).toMatchObject({ stream: true })
})

it('can also be requested with a truth value as Python writes it', async () => {
  const plain = await audio.post([clip(), MODEL, ['stream', 'False']])
  expect(plain.json()).toMatchObject({ text: RESULT.text.trim() })
})

it('repeats nothing when another worker starts again', async () => {
  windows = [
    [1, ' Hello there. '],
    [1, ' Hello there. '],
    [2, ' Bye! '],
  ]
  expect(await streamed()).toEqual([delta('Hello there.'), delta('  Bye!'), DONE])
})

it('sends at the end the text that no window has sent', async () => {
  windows = [[1]]
  expect(await streamed([['response_format', 'text']])).toEqual([delta('Hello there.  Bye!'), DONE])
})

it('sends log-probabilities with the text of their tokens, and all at the end', async () => {
  const [hello, space, bye] = [' Hello there.', '  ', 'Bye!'].map((token, at): SpokenToken => {
    return { token, bytes: [...Buffer.from(token)], logprob: -at - 0.5 }
  }) as [SpokenToken, SpokenToken, SpokenToken]
  windows = [
    [1, ' Hello there.', [hello]],
    [2, '  ', [space]],
    [3, 'Bye!', [bye]],
  ]
  result = { ...RESULT, logprobs: [hello, space, bye] }
  const events = await streamed([['include[]', 'logprobs']])
  expect(events).toEqual([
    { ...delta('Hello there.'), logprobs: [hello] },
    { ...delta('  Bye!'), logprobs: [space, bye] },
    { ...DONE, logprobs: [hello, space, bye] },
  ])
  expect(audio.surface.submitter.requests.at(-1)?.input).toMatchObject({ logprobs: true })
  windows = windows.slice(0, 1)
  expect((await streamed([['include[]', 'logprobs']])).slice(1)).toEqual([
    { ...delta('  Bye!'), logprobs: [space, bye] },
    { ...DONE, logprobs: [hello, space, bye] },
  ])
  result = RESULT
})

it('reports a failure once it has begun', async () => {
  windows = [[1, ' Hello'], failure.overloaded('not now')]
  expect(await streamed()).toEqual([
    delta('Hello'),
    { error: expect.objectContaining({ message: 'not now' }) },
  ])
})
