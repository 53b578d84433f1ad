import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { describe, expect } from 'vitest'

import { parseCatalogue, queuesOf } from '#shared/catalogue.ts'
import { queueName } from '#shared/contracts/job.ts'
import { loadCatalogue } from '#shared/load-catalogue.ts'
import { it } from '#test/support/services.ts'

const MODEL = {
  id: 'tiny-chat',
  kind: 'completion',
  source: 'models/tiny-chat',
  aliases: ['gpt-4o-mini'],
}

const refusals = (
  cases: readonly (readonly [object, string])[],
): readonly (readonly [string, unknown, string])[] =>
  cases.map(([entry, message]) => [
    JSON.stringify(entry),
    { models: [{ ...MODEL, ...entry }] },
    message,
  ])

describe('the catalogue', () => {
  it('finds a model by its id and by its aliases', () => {
    const catalogue = parseCatalogue({ models: [MODEL] })
    expect(catalogue.find('tiny-chat')?.id).toBe('tiny-chat')
    expect(catalogue.find('gpt-4o-mini')?.id).toBe('tiny-chat')
    expect(catalogue.find('constructor')).toBeUndefined()
  })

  it('has text models chat and complete where their entries list no capabilities', () => {
    const { models } = parseCatalogue({
      models: [MODEL, { ...MODEL, id: 'base', aliases: [], capabilities: ['completion'] }],
    })
    expect(models.map(({ capabilities }) => capabilities)).toEqual([
      ['chat', 'completion'],
      ['completion'],
    ])
  })

  it('has a model for each adapter, which runs on its base', () => {
    const adapters = [{ id: 'pirate', source: 'hub:a/pirate', aliases: ['arr'] }]
    const capabilities = ['chat', 'fine-tune']
    const catalogue = parseCatalogue({ models: [{ ...MODEL, capabilities, adapters }] })
    expect(catalogue.find('arr')).toMatchObject({
      id: 'pirate',
      kind: 'completion',
      source: MODEL.source,
      capabilities: ['chat'],
      adapter: { baseId: 'tiny-chat', source: 'hub:a/pirate' },
    })
    expect(catalogue.models.map(({ id }) => id)).toEqual(['tiny-chat', 'pirate'])
    expect(queuesOf(catalogue).map(({ id, kind }) => `${kind} ${id}`)).toEqual([
      ...['completion tiny-chat', 'training tiny-chat'],
    ])
  })

  it.each<readonly [string, unknown, string]>([
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
    ...refusals([
      [{ adapters: {} }, 'models[0].adapters must be an array'],
      [{ adapters: [{ id: 'a' }] }, 'models[0].adapters[0].source must be a non-empty string'],
      [{ adapters: [{ id: 'a', source: 'http://a' }] }, 'adapters[0].source must be a folder'],
      [{ adapters: [{ id: 'a', source: 'b', rank: 4 }] }, '"rank" is not a known key; known: id'],
      [
        { adapters: [{ id: 'gpt-4o-mini', source: 'a' }] },
        'names two models: models[0].aliases[0] and models[0].adapters[0].id',
      ],
      [
        { kind: 'audio', adapters: [{ id: 'a', source: 'b' }] },
        'models[0].adapters changes nothing for a model of kind audio',
      ],
      [{ alias: ['gpt-4o'] }, 'models[0]: "alias" is not a known key; known: id, kind'],
      [{ created: '2026' }, 'models[0].created must be a whole number of seconds'],
      [{ created: -1 }, 'models[0].created must be'],
      [{ owned_by: 5 }, 'models[0].owned_by must be a non-empty string'],
      [{ id: '  ' }, 'models[0].id must be a non-empty string'],
      [{ id: 'a\nb' }, 'models[0].id must have 1 to 200 characters'],
      [{ id: '\ud800' }, 'models[0].id must have 1 to 200 characters'],
      [{ aliases: ['b', ''] }, 'models[0].aliases[1] must have 1 to 200 characters'],
      [{ aliases: ['b', 'b'] }, '"b" names two models: models[0].aliases[0] and models[0].alias'],
      [{ capabilities: ['talk'] }, 'models[0].capabilities: "talk" is not one of a model of kind'],
      [{ source: 'hub:gpt2' }, 'models[0].source must be a folder, hub:owner/name@revision or s3:'],
      [{ source: 'hub:../up' }, 'models[0].source must be a folder'],
      [{ source: 'hub:a/b@c@d' }, 'models[0].source must be a folder'],
      [{ source: 's3:' }, 'models[0].source must be a folder'],
      [{ source: 'https://a/b' }, 'models[0].source must be a folder'],
      [{ options: null }, 'models[0].options must be an object'],
      [{ options: { slots: 0 } }, 'models[0].options.slots must be a number: whole, from 1'],
      [{ options: { slots: 1e9 } }, 'models[0].options.slots must be a number: whole, from 1'],
      [{ options: { slots: 1.5 } }, 'models[0].options.slots must be a number: whole'],
      [{ options: { maxQueueDepth: -1 } }, 'models[0].options.maxQueueDepth must be a number'],
      [{ options: { executionProvider: 'gpu' } }, 'executionProvider must be "cpu" or "cuda"'],
      [{ options: { onnxFile: '../x' } }, 'onnxFile must be the name of a graph'],
      [{ options: { onnxFile: 'onnx/../x' } }, 'onnxFile must be the name of a graph'],
      [{ options: { onnxFile: '/x' } }, 'onnxFile must be the name of a graph'],
      [{ options: { constructor: 1 } }, 'models[0].options.constructor is not a known option'],
      [{ options: { maxImageTokens: 9 } }, 'only for models that read images'],
      [
        { capabilities: ['chat', 'vision'], options: { maxImageTokens: 1 } },
        'options.maxImageTokens must be a number: whole, from 4',
      ],
      [{ options: { steps: 3 } }, 'options.steps changes nothing for models of texts, only for'],
      [
        { kind: 'audio', options: { maxContextTokens: 9 } },
        'options.maxContextTokens changes nothing for models of speech',
      ],
      [{ kind: 'image', options: { steps: 151 } }, 'options.steps must be a number: whole, from 1'],
      [{ kind: 'image', options: { guidance: -1 } }, 'guidance must be a number from 0 to 30'],
      [{ kind: 'image', options: { onnxFile: 'model' } }, 'onnxFile changes nothing for models of'],
      [
        { kind: 'embedding', capabilities: ['vision'], options: { maxImageTokens: 9 } },
        'maxImageTokens changes nothing for',
      ],
      [
        { kind: 'embedding', capabilities: ['rerank', 'vision'] },
        '"vision" has no effect with "rerank"',
      ],
      [
        { kind: 'embedding', capabilities: ['sparse', 'vision'] },
        '"vision" has no effect with "sparse"',
      ],
      [
        {
          kind: 'embedding',
          capabilities: ['classify', 'vision'],
          options: { maxBatchTokens: 9 },
        },
        'options.maxBatchTokens changes nothing for classifiers of images',
      ],
      [
        { kind: 'embedding', capabilities: ['multi-vector', 'vision'] },
        '"vision" has no effect with "multi-vector"',
      ],
      [
        { kind: 'embedding', capabilities: ['rerank'], options: { documentLength: 300 } },
        'options.documentLength changes nothing for rerankers, only for models of several vectors',
      ],
      [
        { kind: 'embedding', capabilities: ['sparse'], options: { tokenIdVocabulary: 'native' } },
        'options.tokenIdVocabulary changes nothing for sparse encoders',
      ],
      [
        { kind: 'embedding', capabilities: ['rerank'], options: { queryPrefix: 'q' } },
        'options.queryPrefix changes nothing for rerankers',
      ],
      [
        { kind: 'audio', options: { voiceActivityModel: 'hub:owner/name' } },
        'voiceActivityModel must be a folder',
      ],
      [
        { kind: 'embedding', options: { matryoshka: 256 } },
        'options.matryoshka must be true or false',
      ],
      [
        { kind: 'embedding', options: { pooling: 'first' } },
        'options.pooling must be "mean" or "cls" or "lasttoken" or "max" or "weightedmean"',
      ],
      [
        { kind: 'embedding', options: { tokenIdVocabulary: 'theirs' } },
        'tokenIdVocabulary must be "native" or "reject"',
      ],
    ]),
    ['an unknown list', { models: [], modles: [] }, 'models.json: "modles" is not a known key'],
  ])('refuses %s, naming the place', (_case, content, message) => {
    expect(() => parseCatalogue(content)).toThrow(message)
  })
})

describe('a catalogue file', () => {
  it.for<readonly [string, string]>([
    ['', 'is wrong: it is empty'],
    [' \n', 'is wrong: it is empty'],
    ['{"models": [\n  { "id": "a" },\n  // all\n]}', "Unexpected token '/' in JSON (line 3)"],
    ['{"models": [\n1,\n]}', "Unexpected token ']' in JSON (line 3)"],
    ['{\n"models": [\n]', 'line 3'],
    ['{"models": []}\n}', '(line 2 column 1)'],
    ['{"models": [\n{"id": "a",}\n]}', '(line 2 column 12)'],
  ])('that cannot be read says where: %j', async ([text, message], { folder }) => {
    const path = join(folder, 'models.json')
    await writeFile(path, text)
    await expect(loadCatalogue(path)).rejects.toThrow(message)
    await expect(loadCatalogue(path)).rejects.toThrow(path)
  })

  it('may begin with the mark of its byte order', async ({ folder }) => {
    const path = join(folder, 'models.json')
    await writeFile(path, `\ufeff${JSON.stringify({ models: [MODEL] })}`)
    expect((await loadCatalogue(path)).models).toHaveLength(1)
  })
})

it('encodes the characters that a queue name may not contain', () => {
  expect(queueName('completion', 'tiny-chat')).toBe('completion.tiny-chat')
  expect(queueName('completion', 'org/model:v1')).toBe('completion.org%2Fmodel%3Av1')
})
