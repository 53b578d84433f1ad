import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { openRealService, type RealService } from './real-service.ts'

let service: RealService
beforeAll(async () => {
  service = await openRealService()
})
afterAll(() => service.close())

interface Answer {
  readonly choices: readonly { readonly text: string; readonly index: number }[]
  readonly data: readonly { readonly score: number }[]
  readonly usage: { readonly completion_tokens: number }
  readonly error: object
}

async function post(path: string, body: object) {
  const response = await fetch(`${service.baseURL}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  return { status: response.status, body: (await response.json()) as Answer }
}

describe('edits by the model that ships', () => {
  const EDIT = {
    model: 'tiny-chat',
    input: 'The cat sat on the mat.',
    instruction: 'Replace cat with dog',
    temperature: 0,
  }

  it('are the same every time at temperature 0, and count their tokens', async () => {
    const one = await post('/edits', EDIT)
    const two = await post('/edits', EDIT)
    expect(one.status).toBe(200)
    expect(one.body.choices[0]?.text).not.toBe('')
    expect(two.body.choices).toEqual(one.body.choices)
    expect(one.body.usage.completion_tokens).toBeGreaterThan(0)
    const more = await post('/edits', { ...EDIT, n: 3, temperature: 1, seed: 1 })
    expect(more.body.choices.map(({ index }) => index)).toEqual([0, 1, 2])
  })

  it('are refused if the text is longer than the model can read', async () => {
    const { status, body } = await post('/edits', { ...EDIT, input: 'word '.repeat(20_000) })
    expect(status).toBe(400)
    expect(body.error).toMatchObject({ code: 'context_length_exceeded', param: 'input' })
  })
})

describe('search by the model that ships', () => {
  it('gives the highest score to the document with the words of the query', async () => {
    const { body } = await post('/engines/tiny-chat/search', {
      query: 'The dog runs in the park.',
      documents: ['Soup is eaten hot.', 'The dog runs in the park.', 'Rain fell at night.'],
    })
    const scores = body.data.map(({ score }) => score)
    expect(scores).toHaveLength(3)
    expect(Math.max(...scores)).toBe(scores[1])
    expect(Math.min(...scores)).toBeGreaterThanOrEqual(0)
  })

  it('names the document that is too long', async () => {
    const documents = ['short', 'word '.repeat(20_000)]
    const { status, body } = await post('/engines/tiny-chat/search', { query: 'a', documents })
    expect(status).toBe(400)
    expect(body.error).toMatchObject({ param: 'documents[1]', code: 'context_length_exceeded' })
  })
})
