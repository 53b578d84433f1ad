import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { openEncoder } from '#workers/embedding/encoder.ts'
import { checkInputs } from '#workers/embedding/encoder-batch.ts'
import { readEncoderFiles } from '#workers/embedding/encoder-files.ts'
import { chooseOutput } from '#workers/embedding/encoder-output.ts'
import { openReranker } from '#workers/embedding/reranker.ts'
import { readSentenceHead } from '#workers/embedding/sentence-head.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

const MODELS = join(import.meta.dirname, '../../../fixtures/models')
const SIGNAL = new AbortController().signal
const runtime = openRuntime()
const root = await mkdtemp(join(tmpdir(), 'millrace-heads-'))
afterAll(async () => {
  await runtime.close()
  await rm(root, { recursive: true })
})

type Files = Readonly<Record<string, unknown>>
let folders = 0

/** A copy of a fixture with other files; an undefined one is taken away. */
async function folderWith(files: Files, fixture = 'minilm'): Promise<string> {
  const folder = join(root, String(folders++))
  await cp(join(MODELS, fixture), folder, { recursive: true })
  for (const [name, content] of Object.entries(files)) {
    const path = join(folder, name)
    await mkdir(dirname(path), { recursive: true })
    if (content === undefined) await rm(path, { force: true })
    else await writeFile(path, Buffer.isBuffer(content) ? content : JSON.stringify(content))
  }
  return folder
}

const moduleOf = (kind: string, index: number) => ({
  idx: index,
  name: String(index),
  type: `sentence_transformers.models.${kind}`,
  path: index === 0 ? '' : `${index}_${kind}`,
})
const modulesOf = (...kinds: string[]) => ['Transformer', ...kinds].map(moduleOf)

/** A safetensors file of float32 tensors. */
function safetensors(tensors: Readonly<Record<string, Float32Array>>): Buffer {
  let end = 0
  const header = Object.entries(tensors).map(([name, values]) => {
    const start = end
    end += values.byteLength
    return [name, { dtype: 'F32', shape: [values.length], data_offsets: [start, end] }] as const
  })
  const json = Buffer.from(JSON.stringify(Object.fromEntries(header)))
  const size = Buffer.alloc(8)
  size.writeBigUInt64LE(BigInt(json.length))
  const parts = Object.values(tensors).map((values) => Buffer.from(values.buffer))
  return Buffer.concat([size, json, ...parts])
}

async function vectorOf(folder: string, text = 'A river'): Promise<Float32Array> {
  const encoder = await openEncoder({ runtime, folder })
  try {
    return await encoder.embed(await encoder.encodeText(text), SIGNAL)
  } finally {
    await encoder.close()
  }
}

describe('pooling', () => {
  it.each<[string, object, readonly string[]]>([
    ['flags', { pooling_mode_cls_token: true, pooling_mode_mean_tokens: false }, ['cls']],
    ['a name', { pooling_mode: 'cls', include_prompt: true }, ['cls']],
    ['another name', { pooling_mode: 'lasttoken' }, ['lastToken']],
    ['several names', { pooling_mode: ['mean', 'max'] }, ['mean', 'max']],
    [
      'several flags',
      { pooling_mode_mean_tokens: true, pooling_mode_cls_token: true },
      ['cls', 'mean'],
    ],
    ['nothing', {}, ['mean']],
  ])('is read from %s', async (_what, config, pooling) => {
    const head = await readSentenceHead(await folderWith({ '1_Pooling/config.json': config }))
    expect(head).toMatchObject({ pooling, problem: undefined })
  })

  it('with several modes concatenates their vectors', async () => {
    const modules = modulesOf('Pooling')
    const of = async (mode: unknown) =>
      vectorOf(
        await folderWith({
          'modules.json': modules,
          '1_Pooling/config.json': { pooling_mode: mode },
        }),
      )
    const both = await of(['mean', 'max'])
    expect([...both]).toEqual([...(await of('mean')), ...(await of('max'))])
  })
})

describe('the pooling mode of the catalogue', () => {
  const bare = { 'modules.json': undefined, '1_Pooling/config.json': undefined }
  const open = async (files: Files, pooling?: string) =>
    openEncoder({ runtime, folder: await folderWith(files), ...(pooling && { pooling }) })

  it('replaces that of the folder, and is the default for folders that name none', async () => {
    const named = await open({ '1_Pooling/config.json': { pooling_mode: 'cls' } })
    const chosen = await open({}, 'cls')
    const assumed = await open(bare)
    const ids = await named.encodeText('A river')
    expect(await chosen.embed(ids, SIGNAL)).toEqual(await named.embed(ids, SIGNAL))
    expect([named, chosen, assumed].map(({ assumedPooling }) => assumedPooling)).toEqual([
      undefined,
      undefined,
      'mean',
    ])
    for (const encoder of [named, chosen, assumed]) await encoder.close()
  })

  it('is refused for a graph that pools itself', async () => {
    const opening = openEncoder({ runtime, folder: join(MODELS, 'bge-m3'), pooling: 'cls' })
    await expect(opening).rejects.toThrow('options.pooling has no effect')
  })
})

describe('leading dimensions', () => {
  const config = { model_type: 'bert', max_position_embeddings: 64 }
  it.each<[string, object, boolean | undefined, boolean]>([
    ['by their number', { ...config, matryoshka_dimensions: [16, 32] }, undefined, true],
    ['by a truth value', { ...config, is_matryoshka: true }, undefined, true],
    ['nowhere', config, undefined, false],
    ['in the catalogue', config, true, true],
    ['in the catalogue against the files', { ...config, is_matryoshka: true }, false, false],
  ])('are embeddings where they are named: %s', async (_where, file, isTruncatable, expected) => {
    const encoder = await openEncoder({
      runtime,
      folder: await folderWith({ 'config.json': file }),
      ...(isTruncatable !== undefined && { isTruncatable }),
    })
    expect(encoder.isTruncatable).toBe(expected)
    await encoder.close()
  })
})

describe('an end token that tokenizer_config.json demands', () => {
  it.each<[string, object, readonly number[]]>([
    ['is added', { add_eos_token: true, eos_token: '[MASK]' }, [3, 4]],
    ['is added by its content', { add_eos_token: true, eos_token: { content: '[MASK]' } }, [3, 4]],
    ['is not added twice', { add_eos_token: true, eos_token: '[SEP]' }, [3]],
    ['is not added where it is unknown', { add_eos_token: true, eos_token: '</s>' }, [3]],
    ['is not added unless demanded', { eos_token: '[MASK]' }, [3]],
  ])('%s', async (_what, config, after) => {
    const encoder = await openEncoder({
      runtime,
      folder: await folderWith({ 'tokenizer_config.json': config }),
    })
    const ids = await encoder.encodeText('river')
    expect(ids.slice(-after.length)).toEqual(after)
    expect(await encoder.encodeText('river', ids.length - 1)).toHaveLength(ids.length - 1)
    await encoder.close()
  })
})

describe('a dense layer after the pooling', () => {
  const weights = Float32Array.from({ length: 4 * 32 }, (_, i) => Math.sin(i))
  const bias = Float32Array.of(0.5, -0.25, 0, 1)
  const config = { in_features: 32, out_features: 4, bias: true }
  const files = {
    'modules.json': modulesOf('Pooling', 'Dense'),
    '2_Dense/config.json': { ...config, activation_function: 'torch.nn.modules.activation.Tanh' },
    '2_Dense/model.safetensors': safetensors({ 'linear.weight': weights, 'linear.bias': bias }),
  }

  it('is computed', async () => {
    const pooled = await vectorOf(await folderWith({ 'modules.json': modulesOf('Pooling') }))
    const expected = [...bias].map((shift, row) =>
      Math.tanh(
        pooled.reduce((sum, value, i) => sum + value * defined(weights[row * 32 + i]), shift),
      ),
    )
    const vector = await vectorOf(await folderWith(files))
    expect(vector.length).toBe(4)
    for (const [i, value] of expected.entries()) expect(vector[i]).toBeCloseTo(value, 5)
  })

  it.each<[string, Files]>([
    [
      'the activation torch.nn.GELU',
      { '2_Dense/config.json': { ...config, activation_function: 'torch.nn.GELU' } },
    ],
    ['model.safetensors is needed', { '2_Dense/model.safetensors': undefined }],
    [
      'is not a safetensors file',
      { '2_Dense/model.safetensors': Buffer.from('nonsense'.repeat(4)) },
    ],
    ['the weights are not those', { '2_Dense/config.json': { ...config, out_features: 5 } }],
    ['the module LSTM is not supported', { 'modules.json': modulesOf('Pooling', 'LSTM') }],
  ])('or module that cannot be computed is refused: %s', async (sentence, changes) => {
    const folder = await folderWith({ ...files, ...changes })
    await expect(openEncoder({ runtime, folder })).rejects.toThrow(sentence)
  })
})

describe('an encoder folder', () => {
  it('with a lower-case configuration reads capitals as small letters', async () => {
    const tokenizer = JSON.parse(await readFile(join(MODELS, 'minilm/tokenizer.json'), 'utf8'))
    const normalizer = { ...tokenizer.normalizer, lowercase: false }
    const cased = { 'tokenizer.json': { ...tokenizer, normalizer } }
    const lowered = { ...cased, 'sentence_bert_config.json': { do_lower_case: true } }
    const idsOf = async (files: Files, text: string) => {
      const encoder = await openEncoder({ runtime, folder: await folderWith(files) })
      const ids = await encoder.encodeText(text)
      await encoder.close()
      return ids
    }
    expect(await idsOf(lowered, 'The RIVER')).toEqual(await idsOf(lowered, 'the river'))
    expect(await idsOf(cased, 'The RIVER')).not.toEqual(await idsOf(cased, 'the river'))
  })

  it('has fewer positions if its family begins them after the padding', async () => {
    const config = { model_type: 'xlm-roberta', max_position_embeddings: 514, pad_token_id: 1 }
    const folder = await folderWith({
      'config.json': config,
      'tokenizer_config.json': undefined,
      'sentence_bert_config.json': undefined,
    })
    expect(await readEncoderFiles(folder)).toMatchObject({ contextLength: 512, firstPosition: 2 })
  })

  it('prefers full precision to 8 bits', async () => {
    const { modelFile } = await readEncoderFiles(join(MODELS, 'minilm'))
    expect(modelFile).toMatch(/onnx\/model\.onnx$/)
  })

  it('with one graph of another name uses that graph', async () => {
    const folder = await folderWith({ 'onnx/model_quantized.onnx': undefined })
    const named = join(folder, 'onnx/model_O4.onnx')
    await cp(join(folder, 'onnx/model.onnx'), named)
    await rm(join(folder, 'onnx/model.onnx'))
    expect((await readEncoderFiles(folder)).modelFile).toBe(named)
  })

  it.each(['tokenizer.json', 'config.json'])('without %s says so', async (name) => {
    const folder = await folderWith({ [name]: undefined })
    await expect(openEncoder({ runtime, folder })).rejects.toThrow(`${name} is missing`)
  })
})

describe('a graph with activations quantized as it runs', () => {
  it('gives a text the same vector in a batch as alone', async () => {
    const folder = join(MODELS, 'minilm')
    const encoder = await openEncoder({ runtime, folder, onnxFile: 'model_quantized' })
    const texts = ['A river', 'Numbers such as 1, 25 and 1984!', 'fox', 'The capital of France?']
    const ids = await Promise.all(texts.map((text) => encoder.encodeText(text)))
    const together = await Promise.all(ids.map((tokenIds) => encoder.embed(tokenIds, SIGNAL)))
    for (const [index, tokenIds] of ids.entries()) {
      expect(together[index]).toEqual(await encoder.embed(tokenIds, SIGNAL))
    }
    await encoder.close()
  })
})

describe('the vector outputs of a graph', async () => {
  const head = await readSentenceHead(join(MODELS, 'minilm'))
  const output = (name: string, rank: number) =>
    ({ name, type: 'float32', dims: ['b', 's', 8].slice(3 - rank) }) as const
  const tokens = output('token_embeddings', 3)
  const whole = output('sentence_embedding', 2)

  it('token vectors are pooled as the folder states', () => {
    const chosen = chooseOutput({ file: 'm', outputs: [whole, tokens] }, head)
    expect(chosen).toMatchObject({ name: 'token_embeddings', isPooled: false })
  })

  it.each([
    ['says nothing', { ...head, isStated: false }],
    ['has a part that is not known', { ...head, problem: 'the module LSTM is not supported' }],
  ])('the finished vector is taken where the folder %s', (_what, other) => {
    const chosen = chooseOutput({ file: 'm', outputs: [tokens, whole] }, other)
    expect(chosen).toMatchObject({ name: 'sentence_embedding', isPooled: true, dimensions: 8 })
  })

  it('do not include those of a classifier', () => {
    expect(() => chooseOutput({ file: 'm', outputs: [output('logits', 2)] }, head)).toThrow(
      'not an encoder of vectors',
    )
  })
})

describe('an input that cannot be filled', () => {
  const ids = { name: 'input_ids', type: 'int64', dims: ['b', 's'] } as const
  it.each([
    ['unknown input task_id', [ids, { ...ids, name: 'task_id' }]],
    ['with attention_mask of one length, not [1, 128]', [{ ...ids, dims: [1, 128] }]],
    ['input_ids must be [batch, length] of any size', [{ ...ids, dims: [4, 's'] }]],
    ['input_ids must be int64 or int32', [{ ...ids, type: 'float32' as const }]],
    [
      'export the encoder alone, such as T5EncoderModel',
      [ids, { ...ids, name: 'decoder_input_ids' }],
    ],
    ['it has no input_ids', [{ ...ids, name: 'attention_mask' }]],
  ])('is named at load: %s', (sentence, inputs) => {
    expect(() => checkInputs({ file: 'model.onnx', inputs })).toThrow(sentence)
  })
})

describe('a folder of sentence-transformers is refused', () => {
  it('where its texts are rendered by a chat template', async () => {
    const folder = await folderWith({
      'sentence_bert_config.json': {
        modality_config: { text: { method: 'forward' }, message: { method: 'forward' } },
      },
    })
    await expect(vectorOf(folder)).rejects.toThrow('its texts are messages of a chat template')
  })

  it('where its pooling skips the tokens of its prompts', async () => {
    const skipping = { '1_Pooling/config.json': { pooling_mode: 'mean', include_prompt: false } }
    const withPrompts = (prompts: object) =>
      folderWith({ ...skipping, 'config_sentence_transformers.json': { prompts } })
    const query = await withPrompts({ query: 'query: ', document: '' })
    await expect(vectorOf(query)).rejects.toThrow('include_prompt must be true')
    await expect(vectorOf(await withPrompts({ query: '' }))).resolves.toHaveLength(32)
  })
})

it('a model of vectors is refused as a reranker at load', async () => {
  const folder = join(MODELS, 'minilm')
  await expect(openReranker({ runtime, folder })).rejects.toThrow('it needs an output logits')
})
