import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { openSurface } from './surface.ts'

/** A wrong field, and the parameter, code and message of its refusal. */
export type Refusal = readonly [
  fields: object,
  param: string | null,
  code: string | null,
  message: string | RegExp,
]

/** A message that nothing is wrong with. */
export const USER = { role: 'user', content: 'Hi' }

/** Declares one test per refusal: 400, these words, and nothing submitted. */
export function itRefuses(url: string, base: object, refusals: readonly Refusal[]): void {
  describe(`POST ${url}`, () => {
    let surface: Awaited<ReturnType<typeof openSurface>>
    beforeAll(async () => {
      surface = await openSurface()
    })
    afterAll(() => surface.app.close())

    it.each(refusals)('refuses %o naming %s (%s)', async (fields, param, code, message) => {
      const response = await surface.post(url, { model: 'tiny-chat', ...base, ...fields })
      expect(response.statusCode).toBe(400)
      const { error } = response.json()
      expect(error).toEqual({
        message: expect.any(String),
        type: 'invalid_request_error',
        param,
        code,
      })
      if (typeof message === 'string') expect(error.message).toBe(message)
      else expect(error.message).toMatch(message)
      expect(surface.submitter.requests).toEqual([])
    })
  })
}
