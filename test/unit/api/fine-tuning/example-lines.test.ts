import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { FaultyExamplesError, prepareExamples } from '#api/fine-tuning/example-lines.ts'
import { createExampleReader } from '#api/inference/chat/training-example.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import { type ObjectStore, readObject } from '#shared/storage/object-store.ts'

const readExample = createExampleReader()
const user = { role: 'user', content: 'Hi' }
const assistant = { role: 'assistant', content: 'Hello.' }
const call = (name: string) => ({
  role: 'assistant',
  content: null,
  tool_calls: [{ id: 'c', type: 'function', function: { name, arguments: '{}' } }],
})
const tools = [{ type: 'function', function: { name: 'weather', parameters: { type: 'object' } } }]
const answered = [user, call('weather'), { role: 'tool', tool_call_id: 'c', content: '20' }]

describe('a line of a training file', () => {
  it.each([
    [{ messages: [user, assistant] }, { messages: [user, assistant] }],
    [
      { prompt: 'a', completion: ' b' },
      { prompt: 'a', completion: ' b' },
    ],
    [
      { messages: [user, { ...assistant, weight: 0 }, user, { ...assistant, weight: 1 }] },
      { messages: [user, { ...assistant, weight: 0 }, user, { ...assistant, weight: 1 }] },
    ],
    [
      { messages: [...answered, assistant], tools },
      { tools: [{ name: 'weather', parameters: { type: 'object' } }] },
    ],
  ])('%j is read', (line, example) => {
    expect(readExample(line)).toMatchObject(example)
  })

  it.each([
    [{}, 'messages', 'missing_required_parameter'],
    [{ messages: [user] }, 'messages', undefined],
    [
      { messages: [{ role: 'robot', content: 'x' }, assistant] },
      'messages[0].role',
      'invalid_value',
    ],
    [{ messages: [user, { role: 'assistant' }] }, 'messages[1].content', undefined],
    [{ messages: [assistant, user] }, 'messages[1].role', 'invalid_value'],
    [{ messages: [{ ...user, weight: 1 }, assistant] }, 'messages[0].weight', 'invalid_value'],
    [{ messages: [user, { ...assistant, weight: 0.5 }] }, 'messages[1].weight', undefined],
    [{ messages: [user, { ...assistant, weight: 0 }] }, 'messages', 'invalid_value'],
    [{ messages: [...answered, assistant] }, 'messages[1].tool_calls', 'invalid_value'],
    [
      {
        messages: [
          user,
          call('launch'),
          { role: 'tool', tool_call_id: 'c', content: '' },
          assistant,
        ],
        tools,
      },
      'messages[1].tool_calls',
      'invalid_value',
    ],
    [{ messages: [user, assistant], input: 'x' }, 'input', 'unknown_parameter'],
    [{ prompt: 'a' }, 'completion', 'missing_required_parameter'],
    [{ prompt: 1, completion: 'b' }, 'prompt', 'invalid_type'],
    [{ prompt: 'a', completion: '' }, 'completion', undefined],
  ])('%j is refused because of %s', (line, param, code) => {
    const expected = { kind: 'invalidRequest', param, ...(code !== undefined && { code }) }
    expect(() => readExample(line)).toThrow(expect.objectContaining(expected))
  })
})

describe('a training file', () => {
  let folder: string
  let store: ObjectStore

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'millrace-examples-'))
    store = openDirectoryStore(folder)
  })

  afterAll(async () => {
    store.close()
    await rm(folder, { recursive: true, force: true })
  })

  const prepare = async (lines: Iterable<string>, examplesMax = 1000) => {
    await store.put('files/x', Readable.from(lines))
    return prepareExamples({
      store,
      readExample,
      examplesMax,
      objectKey: 'files/x',
      preparedKey: 'fine-tuning/x',
      param: 'training_file',
      signal: new AbortController().signal,
    })
  }
  const faultsOf = async (lines: Iterable<string>, examplesMax?: number) => {
    const error = await prepare(lines, examplesMax).catch((thrown: unknown) => thrown)
    expect(error).toBeInstanceOf(FaultyExamplesError)
    expect(await store.head('fine-tuning/x')).toBeUndefined()
    return (error as FaultyExamplesError).faults
  }
  const good = `${JSON.stringify({ messages: [user, assistant] })}\n`

  it('is written as the trainer reads it', async () => {
    expect(await prepare([good, '\n', good])).toEqual({ examples: 2 })
    const stored = await readObject(store, 'fine-tuning/x', 10_000)
    expect(stored.toString()).toBe(good.repeat(2))
    await store.delete('fine-tuning/x')
  })

  it('lists its faults with line and field', async () => {
    const wrong = `${JSON.stringify({ messages: [{ role: 'robot', content: 'x' }, assistant] })}\n`
    expect(await faultsOf([good, wrong, good, 'no json\n', `${'['.repeat(300)}\n`])).toMatchObject([
      { line: 2, param: 'messages[0].role', message: expect.stringContaining('Line 2: ') },
      { line: 4, param: null, code: 'invalid_json_line' },
      { line: 5, code: 'json_too_complex' },
    ])
  })

  it('is read until the fiftieth fault, the limit of examples, or a line of 4 MB', async () => {
    let written = 0
    function* endless(): Generator<string> {
      for (; written < 1_000_000; written += 100)
        yield '{"prompt":1,"completion":"x"}\n'.repeat(100)
    }
    expect(await faultsOf(endless())).toHaveLength(50)
    expect(await faultsOf([good, good, good], 2)).toMatchObject([
      { line: 3, code: 'too_many_examples' },
    ])
    expect(await faultsOf([good, `{"prompt":"${'x'.repeat(5_000_000)}"}\n`])).toMatchObject([
      { line: 2, code: 'line_too_long' },
    ])
    expect(await faultsOf(['\n'])).toMatchObject([{ line: null, code: 'empty_file' }])
  })
})
