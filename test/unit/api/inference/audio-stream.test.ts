import { afterAll, beforeAll, expect, it } from 'vitest'

import { failure } from '#shared/errors.ts'

import { type AudioSurface, clip, MODEL, openAudioSurface } from './audio-surface.ts'
import type { Part } from './forms.ts'
import { answering, type Script } from './surface.ts'

const RESULT = { text: ' Hello there.  Bye! ', language: 'en', durationSeconds: 9, segments: [] }
const STREAM: Part = ['stream', 'true']

let audio: AudioSurface
/** What each window says, with its number; an error ends the job. */
let windows: readonly (readonly [step: number, text?: string] | Error)[] = []

beforeAll(async () => {
  audio = await openAudioSurface(
    (): Script =>
      async function* (request) {
        const [started, result] = answering(RESULT)(request) as never[]
        yield started as never
        for (const window of windows) {
          if (window instanceof Error) throw window
          const [step, text] = window
          yield { type: 'progress', step, steps: 3, ...(text !== undefined && { text }) }
        }
        yield result as never
      },
  )
})
afterAll(() => audio.close())

async function streamed(parts: readonly Part[] = [], url?: string) {
  const response = await audio.post([clip(), MODEL, STREAM, ...parts], url)
  expect(response.headers['content-type']).toBe('text/event-stream; charset=utf-8')
  // A stream ends for its reader a moment before its recording is removed.
  await expect.poll(() => audio.leftovers(), { timeout: 10_000 }).toEqual([])
  return response.body
    .split('\n\n')
    .filter((frame) => frame !== '')
    .map((frame) => JSON.parse(frame.replace(/^data: /, '')) as Record<string, unknown>)
}

const delta = (text: string) => ({ type: 'transcript.text.delta', delta: text })
const DONE = { type: 'transcript.text.done', text: 'Hello there.  Bye!' }

it('sends the text of every window as it is recognized, and at last the whole', async () => {
  windows = [
    [1, ' Hello there. '],
    [2, ''],
    [3, ' Bye! '],
  ]
  expect(await streamed()).toEqual([delta('Hello there.'), delta('  Bye!'), DONE])
  expect(await streamed([], 'translations')).toHaveLength(3)
  expect(audio.surface.submitter.requests.at(-1)?.input).toMatchObject({ stream: true })
})

it('is asked for with a truth value as Python writes it, too', async () => {
  const plain = await audio.post([clip(), MODEL, ['stream', 'False']])
  expect(plain.json()).toMatchObject({ text: RESULT.text.trim() })
})

it('repeats nothing when another worker begins anew', async () => {
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

it('reports a failure once it has begun', async () => {
  windows = [[1, ' Hello'], failure.overloaded('not now')]
  expect(await streamed()).toEqual([
    delta('Hello'),
    { error: expect.objectContaining({ message: 'not now' }) },
  ])
})
