import { describe, expect, it } from 'vitest'

import { digestOf, parseActivities } from '#api/activities/activity.ts'

const NOW = Date.parse('2026-03-01T12:00:00Z')
const parse = (body: unknown) => parseActivities(body, { actor: 'key:key_1', nowMs: NOW })
const nested = (depth: number): unknown => (depth === 0 ? 'leaf' : { inner: nested(depth - 1) })

describe('an activity', () => {
  it('is completed with the caller and the time, and keeps its extensions', () => {
    const { activities, batchName } = parse({
      type: 'Create',
      object: { id: 'doc:1', 'x:size': 3 },
    })
    expect(batchName).toBe(undefined)
    expect(activities[0]).toMatchObject({
      type: 'Create',
      actorId: 'key:key_1',
      objectId: 'doc:1',
      publishedMs: NOW,
    })
    expect(activities[0]?.content).toEqual({
      type: 'Create',
      object: { id: 'doc:1', 'x:size': 3 },
      actor: 'key:key_1',
      published: '2026-03-01T12:00:00.000Z',
    })
  })

  it.each([
    ['activities', { activities: [{ type: 'Like' }, { type: 'View' }] }],
    [
      'orderedItems',
      { type: 'OrderedCollection', orderedItems: [{ type: 'Like' }, { type: 'View' }] },
    ],
    ['items', { type: 'Collection', items: [{ type: 'Like' }, { type: 'View' }] }],
  ])('may come in a list of `%s`', (name, body) => {
    const { activities, batchName } = parse(body)
    expect(batchName).toBe(name)
    expect(activities.map(({ type }) => type)).toEqual(['Like', 'View'])
  })

  it.each<[string, unknown, string | undefined]>([
    ['no object', [], undefined],
    ['no type', {}, 'type'],
    ['a type that is not text', { type: 5 }, 'type'],
    ['an empty type', { type: '' }, 'type'],
    ['a long type', { type: 'x'.repeat(101) }, 'type'],
    ['an id that no address can hold', { type: 'Like', id: '.' }, 'id'],
    ['another such id', { activities: [{ type: 'Like', id: '..' }] }, 'activities[0].id'],
    ['an id of the platform', { type: 'Like', id: 'act_job_1' }, 'id'],
    ['a long id', { type: 'Like', id: 'x'.repeat(201) }, 'id'],
    ['a long summary', { type: 'Like', summary: 'x'.repeat(2001) }, 'summary'],
    ['an actor without id or name', { type: 'Like', actor: { url: 'x' } }, 'actor'],
    ['a number as its target', { type: 'Like', target: 5 }, 'target'],
    ['a date without a time', { type: 'Like', published: '2026-03-01' }, 'published'],
    [
      'a day that its month has not',
      { type: 'Like', published: '2026-02-30T00:00:00Z' },
      'published',
    ],
    ['an hour 24', { type: 'Like', published: '2026-02-03T24:00:00Z' }, 'published'],
    ['the year 0', { type: 'Like', published: '0000-01-01T00:00:00Z' }, 'published'],
    ['the year 10000', { type: 'Like', published: '9999-12-31T23:59:59-10:00' }, 'published'],
    ['half a character in its id', { type: 'Like', id: 'a\ud800' }, 'id'],
    [
      'a faulty second item of a collection',
      { type: 'Collection', items: [{ type: 'Like' }, { type: 'Like', id: 5 }] },
      'items[1].id',
    ],
    [
      'a faulty item of an ordered collection',
      { type: 'OrderedCollection', orderedItems: [{ object: 'x' }] },
      'orderedItems[0].type',
    ],
    ['a date that is none', { type: 'Like', published: '2026-13-01T00:00:00Z' }, 'published'],
    [
      'the generator of the platform',
      { type: 'Like', generator: { name: 'millrace' } },
      'generator',
    ],
    [
      'the generator of the platform among others',
      { type: 'Like', generator: ['x', { id: 'millrace' }] },
      'generator',
    ],
    [
      'the generator of the platform by its name beside an id',
      { type: 'Like', generator: { id: 'x', name: 'millrace' } },
      'generator',
    ],
    ['a NUL character', { type: 'Like', extra: 'a\u0000b' }, undefined],
    ['a NUL character in its summary', { type: 'Like', summary: 'a\u0000b' }, 'summary'],
    ['half of a surrogate pair', { type: 'Like', extra: ['\udc00\ud800'] }, undefined],
    ['half of a surrogate pair in a name', { type: 'Like', '\ud800': 1 }, undefined],
    ['a field of its prototype', JSON.parse('{"type":"Like","__proto__":{}}'), undefined],
    ['65 KiB', { type: 'Like', extra: 'x'.repeat(65 * 1024) }, undefined],
    ['a number that no double holds', JSON.parse('{"type":"Like","x":[1e400]}'), undefined],
    ['33 levels', { type: 'Like', extra: nested(33) }, undefined],
    ['an empty batch', { activities: [] }, 'activities'],
    ['a batch that is not an array', { activities: {} }, 'activities'],
    [
      '1,001 in a batch',
      { activities: Array.from({ length: 1001 }, () => ({ type: 'Like' })) },
      'activities',
    ],
    [
      'a faulty fourth one',
      { activities: [...Array(3).fill({ type: 'Like' }), { type: 1 }] },
      'activities[3].type',
    ],
    [
      'a repeated id',
      {
        activities: [
          { type: 'Like', id: 'a' },
          { type: 'View', id: 'a' },
        ],
      },
      'activities[1].id',
    ],
  ])('is refused with %s, naming the field', (_case, body, param) => {
    expect(() => parse(body)).toThrow(expect.objectContaining({ kind: 'invalidRequest', param }))
  })

  it.each([
    ['2024-02-29T23:59:59Z', '2024-02-29T23:59:59.000Z'],
    ['2026-01-01t00:00:00.5+02:00', '2025-12-31T22:00:00.500Z'],
  ])('may be of %s', (published, utc) => {
    const [activity] = parse({ type: 'Like', published }).activities
    expect(new Date(activity?.publishedMs ?? 0).toISOString()).toBe(utc)
    expect(activity?.content.published).toBe(published)
  })

  it('may name fields that have no value', () => {
    const sent = { id: null, type: 'Like', actor: null, object: null, summary: null }
    const [activity] = parse({ ...sent, published: null }).activities
    expect(activity).toMatchObject({ id: undefined, actorId: 'key:key_1', publishedMs: NOW })
    expect(activity?.content).toEqual({
      ...sent,
      actor: 'key:key_1',
      published: '2026-03-01T12:00:00.000Z',
    })
  })

  it('may have any object of the vocabulary that has a type', () => {
    const object = { type: 'Note', content: 'Hello' }
    expect(parse({ type: 'Create', object }).activities[0]).toMatchObject({
      objectId: undefined,
      content: { object },
    })
    for (const [wrong, param] of [
      [{ content: 'Hello' }, 'object'],
      [{ type: 5 }, 'object.type'],
    ] as const) {
      expect(() => parse({ type: 'Create', object: wrong })).toThrow(
        expect.objectContaining({ param }),
      )
    }
  })

  it('may speak of an escaped zero byte', () => {
    expect(() => parse({ type: 'Like', summary: 'a \\u0000 in C' })).not.toThrow()
  })

  it('may be nested 30 levels deep', () => {
    expect(() => parse({ type: 'Like', extra: nested(30) })).not.toThrow()
  })
})

it('recognizes the same content in any order of its keys', () => {
  expect(digestOf({ type: 'Like', object: { a: 1, b: [2] } })).toEqual(
    digestOf({ object: { b: [2], a: 1 }, type: 'Like' }),
  )
  expect(digestOf({ type: 'Like', object: 'a' })).not.toEqual(
    digestOf({ type: 'Like', object: 'b' }),
  )
})
