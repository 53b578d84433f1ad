import { describe, expect, it } from 'vitest'

import { expandBraces } from '#api/auth/redirects/glob.ts'
import { mentionsJson } from '#api/inference/response-format.ts'
import { validationFailure } from '#api/v1/validation-message.ts'

describe('requests with very many parts', () => {
  it('names the field at fault among 300,000 complaints of alternatives', () => {
    const complaints = Array.from({ length: 300_000 }, (_, index) => ({
      keyword: 'type',
      instancePath: `/input/${index}`,
      schemaPath: '#/properties/input/anyOf/0/items/type',
      params: { type: 'string' },
    }))
    const last = {
      keyword: 'anyOf',
      instancePath: '/input',
      schemaPath: '#/properties/input/anyOf',
      params: {},
    }
    const request = { value: { input: [1] }, schema: {} }
    expect(validationFailure([...complaints, last], request)).toMatchObject({
      status: 400,
      param: 'input[0]',
    })
  })

  it('looks for the word "json" in any text of a request', () => {
    expect(mentionsJson([{ role: 'user', content: [{ text: 'As JSON, please.' }] }])).toBe(true)
    expect(mentionsJson([{ role: 'user', content: [{ text: 'Hi', n: 1, none: null }] }])).toBe(
      false,
    )
    expect(mentionsJson('json')).toBe(true)
  })

  it('expands no more braces than are allowed', () => {
    expect(expandBraces('{a,b}{c,d}')).toEqual(['ac', 'ad', 'bc', 'bd'])
    expect(expandBraces('{a,b}'.repeat(20))).toBeUndefined()
  })
})
