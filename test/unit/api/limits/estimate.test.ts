import type { FastifyRequest } from 'fastify'
import { describe, expect, it } from 'vitest'

import { reservationOf, sizesOf } from '#api/limits/estimate.ts'

it.each([{ toString: 1 }, ['a'], 7, null])('reads no name from a model that is %j', (model) => {
  const request = { body: { model }, headers: {}, params: {}, routeOptions: { config: {} } }
  expect(sizesOf(request as unknown as FastifyRequest).modelName).toBe('')
})

describe('the answers that a request may ask for', () => {
  const say = { role: 'user', content: 'a' }
  it.each([
    [1, { prompt: 'a' }],
    [1, { prompt: [1, 2, 3] }],
    [2, { prompt: ['a', 'b'] }],
    [2, { prompt: [[1], [2, 3]] }],
    [6, { prompt: ['a', 'b'], n: 3 }],
    [1, { messages: [say, say] }],
    [2, { messages: [[say, say], [say]] }],
    [128, { prompt: Array(1000).fill('a') }],
    [1, { prompt: [], messages: {} }],
  ])('are %i of %j', (copies, body) => {
    const request = { body, headers: {}, params: {}, routeOptions: { config: {} } }
    expect(sizesOf(request as unknown as FastifyRequest).copies).toBe(copies)
  })
})

const CONTEXT_LENGTH = 10_000

it.each([
  ['a chat', 'chat', { max_completion_tokens: 10 }, 10],
  ['a chat with the field of another route', 'chat', { max_output_tokens: 0 }, CONTEXT_LENGTH],
  ['a chat with both fields', 'chat', { max_completion_tokens: 0, max_tokens: 500 }, 500],
  ['a chat without a limit', 'chat', { max_tokens: -1 }, CONTEXT_LENGTH],
  ['a response', 'responses', { max_completion_tokens: 0, max_output_tokens: 500 }, 500],
  ['a completion', 'completions', {}, 16],
  ['a completion with other fields', 'completions', { max_output_tokens: 0, max_tokens: 500 }, 500],
  ['a completion without a limit', 'completions', { max_tokens: -1 }, CONTEXT_LENGTH],
  ['several prompts', 'completions', { prompt: ['a', 'b', 'c'], n: 2, max_tokens: 5 }, 30],
])('reserves the output of %s', (_, scope, body, output) => {
  const headers = { 'content-length': '0' }
  const request = { body, headers, params: {}, routeOptions: { config: { scope } } }
  const sizes = sizesOf(request as unknown as FastifyRequest)
  const bounds = { price: undefined, contextLength: CONTEXT_LENGTH }
  expect(reservationOf(sizes, () => bounds as never).tokens).toBe(output)
})
