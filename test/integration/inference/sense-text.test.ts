import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { measuredScores, readEvals, SCORE_MARGIN } from '#test/golden/models/shipped.ts'

import { openRealService, type RealService } from './real-service.ts'

// Ten documents for each query: a random choice is right once in ten.
const FIRST_PLACES_MIN = 0.65
const LONG = { timeout: 300_000 }

interface Problem {
  readonly messages: readonly { readonly content: string }[]
  readonly expected: string
}

interface Trial {
  readonly query: string
  readonly documents: readonly string[]
  readonly right?: number
}

let service: RealService
beforeAll(async () => {
  service = await openRealService()
}, 120_000)
afterAll(() => service.close())

// Held-out problems and measured scores, both by `python -m models.training.tiny_chat evaluate`.
const problemsOf = (gate: string): readonly Problem[] =>
  readEvals<{ gates: Record<string, { problems: Problem[] }> }>('tiny-chat').gates[gate]
    ?.problems ?? []

const leastOf = (gate: string): number =>
  (measuredScores('tiny-chat')[gate] as number) - SCORE_MARGIN

async function post<Answer>(path: string, body: object): Promise<Answer> {
  const answer = await fetch(`${service.baseURL}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  expect([path, answer.status]).toEqual([path, 200])
  return (await answer.json()) as Answer
}

const edit = async (instruction: string, input: string): Promise<string> => {
  const request = { model: 'tiny-chat', instruction, input, temperature: 0 }
  const { choices } = await post<{ choices: { text: string }[] }>('/edits', request)
  return choices[0]?.text.trim() ?? ''
}

describe('edits', () => {
  it.for(['past', 'spelling'])(
    'return the sentence as it was asked for, as often as the model card says: %s',
    LONG,
    async (name) => {
      // An edit is sent as instruction, colon, new line and text; so are these problems.
      const problems = problemsOf(name).flatMap(({ messages, expected }) => {
        const [instruction, input] = messages[0]?.content.split(':\n') ?? []
        return instruction === undefined || input === undefined
          ? []
          : [{ instruction, input, expected }]
      })
      expect(problems.length).toBeGreaterThan(15)
      let right = 0
      for (const { instruction, input, expected } of problems) {
        if ((await edit(instruction, input)) === expected) right += 1
      }
      expect(right / problems.length).toBeGreaterThanOrEqual(leastOf(name))
    },
  )
})

describe('search', () => {
  it.for(['handWritten', 'unseenWords'])(
    'puts the document that answers above the others: %s',
    LONG,
    async (name) => {
      const { groups } = readEvals<{ groups: Record<string, Trial[]> }>('tiny-rerank')
      const trials = groups[name] ?? []
      expect(trials.length).toBeGreaterThanOrEqual(20)
      let right = 0
      for (const { query, documents, right: wanted = 0 } of trials) {
        const request = { query, documents }
        const { data } = await post<{ data: { score: number }[] }>(
          '/engines/tiny-chat/search',
          request,
        )
        const scores = data.map(({ score }) => score)
        if (scores.indexOf(Math.max(...scores)) === wanted) right += 1
      }
      expect(right / trials.length).toBeGreaterThanOrEqual(FIRST_PLACES_MIN)
    },
  )
})

describe('facts', () => {
  it('are answered correctly in a chat as often as the model card says', LONG, async () => {
    const client = new OpenAI({ baseURL: service.baseURL, apiKey: service.apiKey, maxRetries: 0 })
    const problems = problemsOf('facts')
    let right = 0
    for (const { messages, expected } of problems) {
      const { choices } = await client.chat.completions.create({
        model: 'tiny-chat',
        temperature: 0,
        messages: messages.map(({ content }) => ({ role: 'user', content })),
      })
      if (choices[0]?.message.content === expected) right += 1
    }
    expect(right / problems.length).toBeGreaterThanOrEqual(leastOf('facts'))
  })
})
