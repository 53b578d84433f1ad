import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { openRealService, type RealService } from './real-service.ts'

let service: RealService
beforeAll(async () => {
  service = await openRealService()
})
afterAll(() => service.close())

const object = { type: 'object', additionalProperties: false }
/** Within the limits of the API; the worker finds out how many readings the pattern has. */
const READINGS = { type: 'string', pattern: '(a*)*'.repeat(300), minLength: 3, maxLength: 3000 }
const SCHEMA = { ...object, properties: { a: READINGS }, required: ['a'] }
const FORMAT = { type: 'json_schema', json_schema: { name: 's', strict: true, schema: SCHEMA } }
const TOOL = { type: 'function', function: { name: 'f', strict: true, parameters: SCHEMA } }

async function chat(body: object): Promise<{ status: number; error: unknown }> {
  const answer = await fetch(`${service.baseURL}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      model: 'tiny-chat',
      max_tokens: 1,
      messages: [{ role: 'user', content: 'Hi' }],
      ...body,
    }),
  })
  const { error } = (await answer.json()) as { error?: unknown }
  return { status: answer.status, error }
}

describe('a job that exceeds its preparation budget', () => {
  it.each<[string, object]>([
    ['response_format', { response_format: FORMAT }],
    ['tools', { tools: [TOOL], tool_choice: 'required' }],
  ])(
    'by %s is answered 400 and run once',
    async (param, body) => {
      const before = service.runs.length
      const refusal = { param: expect.stringContaining(param), code: 'invalid_json_schema' }
      expect(await chat(body)).toMatchObject({ status: 400, error: refusal })
      // The worker serves others, and has nothing left of the refused job.
      expect((await chat({})).status).toBe(200)
      const runs = service.runs.slice(before)
      expect(runs.length).toBe(2)
      expect(new Set(runs).size).toBe(2)
      await expect.poll(() => service.numBusy()).toBe(0)
    },
    60_000,
  )
})
