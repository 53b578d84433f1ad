import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { openRealService, type RealService } from './real-service.ts'

// Held-out problems and measured scores, both by `python -m models.training.tiny_chat evaluate`.
const EVALS = join(import.meta.dirname, '../../fixtures/evals')
const CARD = join(import.meta.dirname, '../../../models/tiny-chat/eval.json')
// Of fifty problems, two or three more or less are no other model.
const SCORE_MARGIN = 0.06
// Ten documents for each query: whoever guesses is right once in ten.
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

async function readJson<Content>(file: string): Promise<Content> {
  return JSON.parse(await readFile(file, 'utf8')) as Content
}

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
      const { gates } = await readJson<{ gates: Record<string, { problems: Problem[] }> }>(
        join(EVALS, 'tiny-chat.json'),
      )
      const card = await readJson<{ gates: Record<string, { score: number }> }>(CARD)
      // An edit is sent as instruction, colon, new line and text; so are these problems.
      const problems = (gates[name]?.problems ?? []).flatMap(({ messages, expected }) => {
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
      const least = (card.gates[name]?.score as number) - SCORE_MARGIN
      expect(right / problems.length).toBeGreaterThanOrEqual(least)
    },
  )
})

describe('search', () => {
  it.for(['handWritten', 'unseenWords'])(
    'puts the document that answers above the others: %s',
    LONG,
    async (name) => {
      const { groups } = await readJson<{ groups: Record<string, Trial[]> }>(
        join(EVALS, 'tiny-rerank.json'),
      )
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
  it('are answered in a chat as often as the model card says', LONG, async () => {
    const { gates } = await readJson<{ gates: Record<string, { problems: Problem[] }> }>(
      join(EVALS, 'tiny-chat.json'),
    )
    const card = await readJson<{ gates: Record<string, { score: number }> }>(CARD)
    const client = new OpenAI({ baseURL: service.baseURL, apiKey: service.apiKey, maxRetries: 0 })
    const problems = gates.facts?.problems ?? []
    let right = 0
    for (const { messages, expected } of problems) {
      const { choices } = await client.chat.completions.create({
        model: 'tiny-chat',
        temperature: 0,
        messages: messages.map(({ content }) => ({ role: 'user', content })),
      })
      if (choices[0]?.message.content === expected) right += 1
    }
    const least = (card.gates.facts?.score as number) - SCORE_MARGIN
    expect(right / problems.length).toBeGreaterThanOrEqual(least)
  })
})
