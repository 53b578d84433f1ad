import type { FastifyRequest } from 'fastify'
import { expect, it } from 'vitest'

import { sizesOf } from '#api/limits/estimate.ts'

it.each([{ toString: 1 }, ['a'], 7, null])('reads no name from a model that is %j', (model) => {
  const request = { body: { model }, headers: {}, params: {}, routeOptions: { config: {} } }
  expect(sizesOf(request as unknown as FastifyRequest).modelName).toBe('')
})
