import {
  copyFileSync,
  cpSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { generate } from '#test/unit/workers/engine/generate.ts'
import { CONFIG, fixtureFolder, readJson } from '#test/unit/workers/text/model-folders.ts'
import { readEncoderFiles } from '#workers/embedding/encoder-files.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { mayBacktrackExponentially } from '#workers/models/tokenizer-limits.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { loadTextModel, renderChat } from '#workers/text/text-model.ts'
import { createTokenizer } from '#workers/text/tokenizer.ts'

const CLOCK = { now: () => 0, monotonic: () => 0 }
const root = mkdtempSync(join(tmpdir(), 'millrace-hostile-'))
const runtime = openRuntime()
afterAll(async () => {
  await runtime.close()
  rmSync(root, { recursive: true })
})

function copyOf(name: string): string {
  const folder = join(mkdtempSync(join(root, 'model-')), 'm')
  cpSync(fixtureFolder(name), folder, { recursive: true })
  return folder
}

const open = (folder: string) => openTextEngine({ runtime, folder, slots: 1, onnxFile: 'model' })

/** Replaces the name of the file with the weights by another of the same length. */
function pointWeightsTo(folder: string, location: string): void {
  const graph = join(folder, 'onnx/model.onnx')
  const bytes = readFileSync(graph)
  const name = 'model.onnx_data'
  for (let at = bytes.indexOf(name); at >= 0; at = bytes.indexOf(name, at + 1))
    bytes.write(location, at)
  copyFileSync(join(folder, 'onnx', name), join(folder, '../secret.da'))
  rmSync(join(folder, 'onnx', name))
  writeFileSync(graph, bytes)
}

describe('a graph', () => {
  it.each<[string, (folder: string) => void, RegExp]>([
    [
      'with weights above its folder',
      (folder) => pointWeightsTo(folder, '../../secret.da'),
      /escapes/,
    ],
    [
      'with weights at an absolute path',
      (folder) => pointWeightsTo(folder, '/etc/ssl/passwd'),
      /Absolute/,
    ],
    [
      'with weights behind a link out of its folder',
      (folder) => {
        pointWeightsTo(folder, 'model.onnx_data')
        symlinkSync(join(folder, '../secret.da'), join(folder, 'onnx/model.onnx_data'))
      },
      /escapes/,
    ],
    [
      'with weights cut short',
      (folder) => truncateSync(join(folder, 'onnx/model.onnx_data'), 100),
      /./,
    ],
    ['cut short', (folder) => truncateSync(join(folder, 'onnx/model.onnx'), 500), /./],
    ['of nothing', (folder) => truncateSync(join(folder, 'onnx/model.onnx'), 0), /./],
    [
      'of absurd lengths',
      (folder) =>
        writeFileSync(join(folder, 'onnx/model.onnx'), Buffer.from(`3a${'ff'.repeat(9)}7f`, 'hex')),
      /./,
    ],
    [
      'whose configuration is not JSON',
      (folder) => writeFileSync(join(folder, 'config.json'), '{"a":'),
      /is not JSON/,
    ],
    [
      'whose configuration is not UTF-8',
      (folder) => writeFileSync(join(folder, 'config.json'), Buffer.from('7b22ff227d', 'hex')),
      /not UTF-8/,
    ],
  ])('%s is refused, while other models go on', async (_what, change, reason) => {
    const other = await open(fixtureFolder('llama-external'))
    const folder = copyOf('llama-external')
    change(folder)
    await expect(open(folder)).rejects.toMatchObject({
      name: 'ModelLoadError',
      message: expect.stringMatching(reason),
    })
    expect((await generate(other, { maxNewTokens: 4 })).tokenIds).toHaveLength(4)
    await other.close()
  })

  it.each(['../../../etc/passwd', '/etc/passwd', '../onnx/model', 'a/../../b'])(
    'is not sought at %s',
    async (onnxFile) => {
      const folder = fixtureFolder('llama')
      await expect(openTextEngine({ runtime, folder, slots: 1, onnxFile })).rejects.toThrow(
        'there is no',
      )
      await expect(readEncoderFiles(fixtureFolder('minilm'), onnxFile)).rejects.toThrow(
        'there is no',
      )
    },
  )
})

describe('a chat template', () => {
  const load = (template: string) => {
    const folder = copyOf('llama')
    writeFileSync(join(folder, 'chat_template.jinja'), template)
    return loadTextModel(folder, CLOCK)
  }

  it.each([
    [
      'loops for ever',
      '{% for a in range(10**9) %}{% for b in range(10**9) %}{% endfor %}{% endfor %}',
    ],
    [
      'prints for ever',
      '{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}',
    ],
    ['calls itself', '{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}'],
    [
      'doubles a text',
      "{% set ns = namespace(t='x' ) %}{% for a in range(100) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}{{ ns.t }}",
    ],
    [
      'doubles a list',
      '{% set ns = namespace(l=[1]) %}{% for a in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}',
    ],
  ])(
    'that %s is stopped',
    async (_what, template) => {
      const model = await load(template)
      expect(() => renderChat(model, [{ role: 'user', content: 'Hi' }], [])).toThrow(
        'The chat template of this model cannot render these messages',
      )
    },
    20_000,
  )

  it('is not stopped in a chat of thousands of turns', async () => {
    const model = await load(
      '{% for m in messages %}{% if not loop.index0 == messages | length - 1 %}{{ "<|im_start|>" + m.role }}{% endif %}' +
        "{{ '\\n' + m['content'] | trim + '<|im_end|>' }}{% endfor %}",
    )
    const turn = { role: 'user' as const, content: 'word '.repeat(50) }
    const { text } = renderChat(
      model,
      Array.from({ length: 8192 }, () => turn),
      [],
    )
    expect(text.length).toBeGreaterThan(8192 * 250)
  })

  it.each([
    ['is huge', 'x'.repeat(2 << 20), 'too long'],
    [
      'is nested too deeply',
      '{{ '.concat('('.repeat(50_000), '1', ')'.repeat(50_000), ' }}'),
      'cannot be read',
    ],
  ])('that %s is refused at load', async (_what, template, reason) => {
    await expect(load(template)).rejects.toThrow(reason)
  })
})

describe('a tokenizer', () => {
  const json = readJson(join(fixtureFolder('llama'), 'tokenizer.json')) as {
    model: { vocab: object }
  }
  const model = (changes: object) => ({ ...json, model: { ...json.model, ...changes } })
  const vocab = (text: string) => JSON.parse(`{${text}}`) as object

  it.each<[string, object, string]>([
    ['without a vocabulary', { model: {} }, 'no vocabulary'],
    ['with an id of billions', model({ vocab: vocab('"a": 4294967294') }), 'not a token id'],
    ['with an id that is not a number', model({ vocab: vocab('"a": "length"') }), 'not a token id'],
    [
      'with an added id below zero',
      { ...json, added_tokens: [{ id: -1, content: 'x' }] },
      'not a token id',
    ],
    [
      'with a pattern that backtracks for ever',
      {
        ...json,
        pre_tokenizer: {
          type: 'Sequence',
          pretokenizers: [{ type: 'Split', pattern: { Regex: '(a+)+$' }, behavior: 'Isolated' }],
        },
      },
      'exponential',
    ],
    [
      'with such a normalizer',
      { ...json, normalizer: { type: 'Replace', pattern: { Regex: '(?:x|x)*y' }, content: '' } },
      'exponential',
    ],
  ])('%s is refused', (_what, hostile, reason) => {
    expect(() => createTokenizer(hostile, CONFIG)).toThrow(reason)
  })

  it.each<[string, Record<string, string>, RegExp]>([
    [
      'of millions of words',
      {
        'tokenizer_config.json': '{"tokenizer_class": "BertTokenizer"}',
        'vocab.txt': '\n'.repeat(1e6),
      },
      /vocab.txt: it has more than 1000000 lines/,
    ],
    [
      'of millions of merges',
      {
        'tokenizer_config.json': '{"tokenizer_class": "GPT2Tokenizer"}',
        'vocab.json': '{"<|endoftext|>": 0}',
        'merges.txt': 'a b\r'.repeat(1e6),
      },
      /merges.txt: it has more than 1000000 lines/,
    ],
    [
      'whose class is an object',
      { 'tokenizer_config.json': '{"tokenizer_class": {"toString": 1}}' },
      /no file names the class/,
    ],
  ])('%s in other files is refused', async (_what, files, reason) => {
    const folder = mkdtempSync(join(root, 'files-'))
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text)
    await expect(loadTextModel(folder, CLOCK)).rejects.toMatchObject({
      name: 'ModelLoadError',
      message: expect.stringMatching(reason),
    })
  })

  it('keeps words such as __proto__ to itself', () => {
    const words = vocab('"__proto__": 0, "constructor": 1, "a": 2')
    const tokenizer = createTokenizer(
      JSON.parse(
        JSON.stringify({ model: { type: 'WordLevel', unk_token: 'a' }, __proto__x: 1 }).replace(
          '"type"',
          `"vocab":${JSON.stringify(words).replace('{', '{"__proto__":0,')},"type"`,
        ),
      ) as object,
      JSON.parse(
        '{"__proto__": {"polluted": 1}, "constructor": {"prototype": {"polluted": 1}}}',
      ) as object,
    )
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined()
    expect(tokenizer.findTokenId('constructor')).toBe(1)
  })

  it.each([
    [
      String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
      false,
    ],
    [
      String.raw`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}]*[\p{Ll}\p{M}]+(?i:'s|'t|'re)?|\p{N}{1,3}| ?[^\s\p{L}]+[\r\n/]*|\s+`,
      false,
    ],
    [String.raw` ?[^(\s|[.,!?…。，、।۔،])]+`, false],
    ['(a+)+$', true],
    ['((a)*b?)*', true],
    ['(?:a|ab)+', true],
    ['(?:[ab]{2,}c)*', true],
    ['(?:abc)+', false],
  ])('judges the pattern %s', (pattern, expected) => {
    expect(mayBacktrackExponentially(pattern)).toBe(expected)
  })
})
