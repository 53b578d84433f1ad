import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import type { ChatMessage } from '#shared/contracts/completion.ts'
import { defined } from '#shared/json.ts'
import { loadTextModel, renderChat, type TextModel } from '#workers/text/text-model.ts'

import { fixtureFolder } from './model-folders.ts'

const CLOCK = { now: () => 0, monotonic: () => 0 }
const HI: readonly ChatMessage[] = [{ role: 'user', content: 'Hi' }]
const TOOLS = [{ name: 'weather', parameters: { type: 'object' } }]
const root = await mkdtemp(join(tmpdir(), 'millrace-text-'))
afterAll(() => rm(root, { recursive: true }))

/** Loads a copy of the llama fixture with other files; undefined takes one away. */
async function load(files: Readonly<Record<string, unknown>>): Promise<TextModel> {
  const folder = await mkdtemp(join(root, 'model-'))
  for (const name of ['tokenizer.json', 'config.json', 'generation_config.json']) {
    await cp(join(fixtureFolder('llama'), name), join(folder, name))
  }
  for (const [name, content] of Object.entries(files)) {
    const path = join(folder, name)
    await mkdir(dirname(path), { recursive: true })
    const text = typeof content === 'string' ? content : JSON.stringify(content)
    if (content === undefined) await rm(path)
    else await writeFile(path, text)
  }
  return loadTextModel(folder, CLOCK)
}

describe('the chat template of a folder', () => {
  it.each<[string, Readonly<Record<string, unknown>>, string]>([
    [
      'chat_template.jinja',
      { 'chat_template.jinja': 'jinja {{ messages[0].content }}' },
      'jinja Hi',
    ],
    ['chat_template.json', { 'chat_template.json': { chat_template: 'json' } }, 'json'],
    ['tokenizer_config.json', { 'tokenizer_config.json': { chat_template: 'config' } }, 'config'],
    [
      'a list of named ones',
      {
        'tokenizer_config.json': {
          chat_template: [
            { name: 'tool_use', template: 'use' },
            { name: 'default', template: 'plain' },
          ],
        },
      },
      'plain',
    ],
    [
      'a file before the configuration',
      { 'chat_template.jinja': 'file', 'tokenizer_config.json': { chat_template: 'config' } },
      'file',
    ],
  ])('is read from %s', async (_what, files, expected) => {
    expect(renderChat(await load(files), HI, []).text).toBe(expected)
  })

  it('for tools may be in a separate folder', async () => {
    const model = await load({
      'chat_template.jinja': 'plain',
      'additional_chat_templates/tool_use.jinja': '{{ tools[0].function.name }}',
    })
    expect(renderChat(model, HI, TOOLS).text).toBe('weather')
    expect(renderChat(model, HI, []).text).toBe('plain')
  })

  it('that cannot be parsed is named at load', async () => {
    await expect(load({ 'chat_template.jinja': '{% nonsense %}' })).rejects.toThrow(
      'the chat template cannot be read',
    )
  })

  it.each([
    ['which takes precedence', {}, '<other><|im_end|>'],
    ['unless added_tokens_decoder is there', { added_tokens_decoder: {} }, '<own><|im_end|>'],
  ])('knows the special tokens of special_tokens_map.json, %s', async (_when, stated, shown) => {
    const model = await load({
      'chat_template.jinja': '{{ bos_token }}{{ eos_token }}',
      'special_tokens_map.json': { bos_token: '<other>', eos_token: { content: '<|im_end|>' } },
      'tokenizer_config.json': { bos_token: '<own>', ...stated },
    })
    expect(renderChat(model, HI, []).text).toBe(shown)
    expect(model.endTokenIds.has(defined(model.tokenizer.findTokenId('<|im_end|>')))).toBe(true)
  })
})

describe('the tokens that end an answer', () => {
  it.each<[string, Readonly<Record<string, unknown>>, readonly number[]]>([
    ['of generation_config.json', { 'generation_config.json': { eos_token_id: [7, 8] } }, [7, 8]],
    [
      'of config.json',
      { 'generation_config.json': undefined, 'config.json': { eos_token_id: 5 } },
      [5],
    ],
    ['nested in it', { 'config.json': { text_config: { eos_token_id: 6 } } }, [6]],
    [
      'of genai_config.json',
      { 'genai_config.json': { model: { eos_token_id: [9, 10] } } },
      [9, 10],
    ],
  ])('are those %s', async (_what, files, expected) => {
    const { endTokenIds } = await load({ 'config.json': {}, ...files })
    expect([...endTokenIds]).toEqual(expect.arrayContaining([...expected]))
  })
})

it.each<[string, Readonly<Record<string, unknown>>]>([
  ['tokenizer.json is missing', { 'tokenizer.json': undefined }],
  ['tokenizer.json is not JSON', { 'tokenizer.json': '{"model":' }],
  ['tokenizer_config.json is not a JSON object', { 'tokenizer_config.json': '[]' }],
])('a folder is refused with a sentence: %s', async (sentence, files) => {
  await expect(load(files)).rejects.toThrow(sentence)
})

describe('the sampling defaults of a folder', () => {
  it.each<[string, object, object]>([
    ['nothing where the file is silent', { eos_token_id: 2 }, {}],
    [
      'the values of generation_config.json',
      { temperature: 0.6, top_p: 0.95, top_k: 20, min_p: 0.05, repetition_penalty: 1.05 },
      { temperature: 0.6, topP: 0.95, topK: 20, minP: 0.05, repetitionPenalty: 1.05 },
    ],
    ['no value that a request could not have', { temperature: 9, top_p: '1', top_k: 0.5 }, {}],
  ])('are %s', async (_, generation, expected) => {
    const model = await load({ 'generation_config.json': generation })
    expect(model.samplingDefaults).toEqual(expected)
  })
})
