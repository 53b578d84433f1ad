import type { FastifyRequest } from 'fastify'
import { describe, expect, it } from 'vitest'

import { sizesOf } from '#api/limits/estimate.ts'

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
