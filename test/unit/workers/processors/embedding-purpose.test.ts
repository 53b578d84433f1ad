import { describe, expect, it } from 'vitest'

import { purposeOf } from '#workers/processors/embedding-purpose.ts'

const TASKS = [
  { name: 'retrieval.query', instruction: 'Find: ' },
  { name: 'text-matching', instruction: '' },
]
const ALIKE = { tasks: [], prompts: {} }
const PREFIXED = { tasks: [], prompts: { query: 'q: ', passage: 'p: ' } }
const USUAL = { tasks: [], prompts: { query: 'q: ', usual: 'u: ' } }
const ADAPTED = { tasks: TASKS, prompts: {} }
const input = (role: 'query' | 'passage' | 'none', taskName?: string) => ({
  ...({ task: 'embed', items: ['a'], dimensions: null, role } as const),
  ...(taskName !== undefined && { taskName }),
})

describe('the prefix of the texts of a request', () => {
  it.each([
    ['nothing', input('none'), ALIKE, {}, { prefix: '' }],
    [
      'nothing, with the task reported',
      input('none', 'separation'),
      ALIKE,
      {},
      { prefix: '', ignored: ['task'] },
    ],
    [
      'nothing, with the type reported',
      input('query', 'separation'),
      ALIKE,
      {},
      { prefix: '', ignored: ['input_type', 'task'] },
    ],
    ['the prompt of the files', input('query'), PREFIXED, {}, { prefix: 'q: ' }],
    ['the usual prompt of the files', input('none'), USUAL, {}, { prefix: 'u: ' }],
    [
      'the prompt of its role instead of the usual one',
      input('query'),
      USUAL,
      {},
      { prefix: 'q: ' },
    ],
    [
      'the prefix of the catalogue first',
      input('passage'),
      PREFIXED,
      { passagePrefix: 'x' },
      { prefix: 'x' },
    ],
    [
      'the prompt of a task of retrieval',
      input('none', 'retrieval.passage'),
      PREFIXED,
      {},
      { prefix: 'p: ' },
    ],
    [
      'the type before a task',
      input('query', 'retrieval.passage'),
      PREFIXED,
      {},
      { prefix: 'q: ', ignored: ['task'] },
    ],
    ['the adapter of the type', input('query'), ADAPTED, {}, { prefix: 'Find: ', taskId: 0 }],
    ['the usual adapter', input('none'), ADAPTED, {}, { prefix: '', taskId: 1 }],
    [
      'the instruction of an adapter',
      input('none', 'retrieval.query'),
      ADAPTED,
      {},
      { prefix: 'Find: ', taskId: 0 },
    ],
  ])('is %s', (_name, given, encoder, options, expected) => {
    expect(purposeOf(given, encoder, options)).toEqual(expected)
  })

  it.each([
    ['input_type', input('passage'), ADAPTED],
    ['task', input('none', 'separation'), ADAPTED],
    ['task', input('query', 'text-matching'), ADAPTED],
  ])('is refused by the name %s', (param, given, encoder) => {
    expect(() => purposeOf(given, encoder, {})).toThrow(expect.objectContaining({ param }))
  })
})
