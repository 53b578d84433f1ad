import { describe, expect, it } from 'vitest'

import { parseCatalogue } from '#shared/catalogue.ts'
import { queueName } from '#shared/contracts/queues.ts'

const MODEL = {
  id: 'tiny-chat',
  kind: 'completion',
  source: 'models/tiny-chat',
  aliases: ['gpt-4o-mini'],
}

describe('the catalogue', () => {
  it('finds a model by its id and by its aliases', () => {
    const catalogue = parseCatalogue({ models: [MODEL] })
    expect(catalogue.find('tiny-chat')?.id).toBe('tiny-chat')
    expect(catalogue.find('gpt-4o-mini')?.id).toBe('tiny-chat')
    expect(catalogue.find('constructor')).toBeUndefined()
  })

  it.each([
    ['not an object', [], 'models.json: models.json must be an object'],
    ['no list', {}, '"models" must be an array'],
    ['an unknown kind', { models: [{ ...MODEL, kind: 'video' }] }, 'models[0].kind must be one of'],
    [
      'no source',
      { models: [{ ...MODEL, source: '' }] },
      'models[0].source must be a non-empty string',
    ],
    [
      'a name used twice',
      { models: [MODEL, { ...MODEL, aliases: [] }] },
      '"tiny-chat" names two models',
    ],
    [
      'an unknown option',
      { models: [{ ...MODEL, options: { slot: 1 } }] },
      'options.slot is not a known option',
    ],
    [
      'an option of the wrong type',
      { models: [{ ...MODEL, options: { slots: '4' } }] },
      'options.slots must be a number',
    ],
  ])('refuses %s, naming the place', (_case, content, message) => {
    expect(() => parseCatalogue(content)).toThrow(message)
  })
})

it('encodes what a queue name may not contain', () => {
  expect(queueName('completion', 'tiny-chat')).toBe('completion.tiny-chat')
  expect(queueName('completion', 'org/model:v1')).toBe('completion.org%2Fmodel%3Av1')
})
