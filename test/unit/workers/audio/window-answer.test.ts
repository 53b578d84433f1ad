import { describe, expect, it } from 'vitest'

import type { Answer, AnswerRequest } from '#workers/audio/answer-decoder.ts'
import { answerWindow } from '#workers/audio/window-answer.ts'

const SURE: Answer = { tokenIds: [1], logprobs: [], averageLogprob: -0.2, probed: 0 }
const UNSURE: Answer = { ...SURE, averageLogprob: -1.5 }
const TEXTS = ['', 'A clock in the city.', 'again '.repeat(40)]
const [NOTHING, SPEECH, REPETITION] = [0, 1, 2] as const

/** Answers a window with one attempt after another, the last of them again and again. */
async function answer(attempts: readonly Answer[], temperature = 0) {
  const tried: number[] = []
  const decoder = {
    decode: async (request: AnswerRequest): Promise<Answer> => {
      tried.push(request.temperature)
      return (attempts[tried.length - 1] ?? attempts.at(-1)) as Answer
    },
  }
  const request = {
    temperature,
    textOf: ([index = NOTHING]: readonly number[]) => TEXTS[index] as string,
  } as Parameters<typeof answerWindow>[1]
  const kept = await answerWindow(decoder, request, new AbortController().signal)
  return { ...kept, tried }
}

describe('the answer to a window', () => {
  it('is the first that is reliable and not repetitive', async () => {
    expect((await answer([SURE])).tried).toEqual([0])
    expect((await answer([UNSURE, SURE])).tried).toEqual([0, 0.2])
    const repeated = { ...SURE, tokenIds: [REPETITION] }
    expect((await answer([repeated, repeated, SURE])).tried).toEqual([0, 0.2, 0.4])
    expect((await answer([UNSURE])).tried).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1])
  })

  it('is decoded once if the request names a temperature', async () => {
    expect((await answer([UNSURE], 0.3)).tried).toEqual([0.3])
  })

  it('is silence only if the model detects no speech and doubts its words', async () => {
    expect(await answer([{ ...UNSURE, probed: 0.9 }])).toMatchObject({
      isSilence: true,
      tried: [0],
    })
    expect((await answer([{ ...SURE, probed: 0.9 }])).isSilence).toBe(false)
    expect((await answer([{ ...UNSURE, probed: 0.3 }])).isSilence).toBe(false)
  })

  it('is lost if it has no text though the model detects speech', async () => {
    expect((await answer([{ ...SURE, tokenIds: [NOTHING] }])).isLost).toBe(true)
    expect((await answer([{ ...SURE, tokenIds: [NOTHING], probed: 0.9 }])).isLost).toBe(false)
    expect((await answer([{ ...SURE, tokenIds: [SPEECH] }])).isLost).toBe(false)
  })
})
