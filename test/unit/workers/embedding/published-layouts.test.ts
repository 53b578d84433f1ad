import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { checkInputs, ENCODER_INPUTS } from '#workers/embedding/encoder-batch.ts'
import { readEncoderFiles } from '#workers/embedding/encoder-files.ts'
import { chooseOutput } from '#workers/embedding/encoder-output.ts'

// Each model as published: its configuration, the modules of sentence-transformers, and the inputs
// and outputs of its export. Fields that are not read here are left out.

const root = await mkdtemp(join(tmpdir(), 'millrace-layouts-'))
afterAll(() => rm(root, { recursive: true }))

type Json = Readonly<Record<string, unknown>>
type Spec = Parameters<typeof chooseOutput>[0]['outputs'][number]

const IDS = (name: string): Spec => ({ name, type: 'int64', dims: ['b', 's'] })
const PLAIN = ['input_ids', 'attention_mask'].map(IDS)
const TYPED = [...PLAIN, IDS('token_type_ids')]
const CACHE: Spec = { name: 'past_key_values.0.key', type: 'float32', dims: ['b', 8, 'p', 128] }
const OF_TOKENS = (name: string): Spec => ({ name, type: 'float32', dims: ['b', 's', 1024] })
const OF_TEXTS = (name: string): Spec => ({ name, type: 'float32', dims: ['b', 1024] })
const HIDDEN = [OF_TOKENS('last_hidden_state')]

const modules = (...kinds: readonly string[]): Json[] =>
  ['Transformer', ...kinds].map((kind, index) => ({
    idx: index,
    type: `sentence_transformers.models.${kind}`,
    path: index === 0 ? '' : `${index}_${kind}`,
  }))
const pooled = (mode: string, ...after: readonly string[]): Record<string, unknown> => ({
  'modules.json': modules('Pooling', ...after),
  '1_Pooling/config.json': { [`pooling_mode_${mode}`]: true },
})
const prompts = (query: string): Record<string, unknown> => ({
  'config_sentence_transformers.json': { prompts: { query, document: '' } },
})

interface Layout {
  readonly config: Json
  readonly files?: Json
  readonly inputs?: readonly Spec[]
  readonly outputs?: readonly Spec[]
  /** The option of the catalogue. */
  readonly pooling?: string
}

const NEW = { model_type: 'new', architectures: ['NewModel'], position_embedding_type: 'rope' }
const QWEN3 = {
  config: {
    model_type: 'qwen3',
    architectures: ['Qwen3ForCausalLM'],
    max_position_embeddings: 32_768,
  },
  inputs: [...PLAIN, IDS('position_ids'), CACHE],
  outputs: [...HIDDEN, { ...CACHE, name: 'present.0.key' }],
}
const XLM_R = { model_type: 'xlm-roberta', max_position_embeddings: 8194, pad_token_id: 1 }
const BERT = { model_type: 'bert', max_position_embeddings: 512, pad_token_id: 0 }

const LAYOUTS: readonly (readonly [string, Layout, Json])[] = [
  [
    'gte-base-en-v1.5',
    {
      config: { ...NEW, max_position_embeddings: 8192, pad_token_id: 0 },
      files: { ...pooled('cls_token'), 'tokenizer_config.json': { model_max_length: 32_768 } },
    },
    { pooling: ['cls'], contextLength: 8192, firstPosition: 0 },
  ],
  [
    // Rotations begin at zero for any number of the padding token.
    'gte-multilingual-base',
    {
      config: { ...NEW, max_position_embeddings: 8192, pad_token_id: 1, type_vocab_size: 1 },
      files: pooled('cls_token', 'Normalize'),
    },
    { pooling: ['cls'], contextLength: 8192, firstPosition: 0, paddingId: 1 },
  ],
  [
    // `classifier_pooling` is that of another head.
    'gte-modernbert-base',
    {
      config: {
        model_type: 'modernbert',
        architectures: ['ModernBertModel'],
        classifier_pooling: 'mean',
        max_position_embeddings: 8192,
        pad_token_id: 50_283,
      },
      files: pooled('cls_token'),
      inputs: PLAIN,
    },
    { pooling: ['cls'], contextLength: 8192, paddingId: 50_283 },
  ],
  [
    'snowflake-arctic-embed-m',
    {
      config: BERT,
      files: {
        ...pooled('cls_token', 'Normalize'),
        ...prompts('Represent this sentence for searching relevant passages: '),
      },
    },
    {
      pooling: ['cls'],
      contextLength: 512,
      prompts: { query: 'Represent this sentence for searching relevant passages: ' },
    },
  ],
  [
    'a model with a prompt for all texts',
    {
      config: BERT,
      files: {
        ...pooled('cls_token', 'Normalize'),
        'config_sentence_transformers.json': {
          prompts: { query: 'query: ', retrieval: 'Retrieve: ' },
          default_prompt_name: 'retrieval',
        },
      },
    },
    {
      pooling: ['cls'],
      contextLength: 512,
      prompts: { query: 'query: ', usual: 'Retrieve: ' },
    },
  ],
  [
    'snowflake-arctic-embed-l-v2.0',
    {
      config: XLM_R,
      files: { ...pooled('cls_token', 'Normalize'), ...prompts('query: ') },
      inputs: PLAIN,
      outputs: [OF_TOKENS('token_embeddings'), OF_TEXTS('sentence_embedding')],
    },
    {
      pooling: ['cls'],
      contextLength: 8192,
      firstPosition: 2,
      output: 'token_embeddings',
      prompts: { query: 'query: ' },
    },
  ],
  [
    'nomic-embed-text-v1.5',
    {
      config: { model_type: 'nomic_bert', n_positions: 8192, max_trained_positions: 2048 },
      files: pooled('mean_tokens'),
    },
    { pooling: ['mean'], contextLength: 8192, paddingId: 0 },
  ],
  [
    'jina-embeddings-v2',
    {
      config: {
        ...BERT,
        architectures: ['JinaBertForMaskedLM'],
        max_position_embeddings: 8192,
        position_embedding_type: 'alibi',
        model_max_length: 8192,
      },
      files: pooled('mean_tokens'),
    },
    { pooling: ['mean'], contextLength: 8192 },
  ],
  [
    'jina-embeddings-v3',
    {
      config: { ...XLM_R, lora_adaptations: ['retrieval.query', 'text-matching'] },
      files: pooled('mean_tokens', 'Normalize'),
      inputs: [...PLAIN, { name: 'task_id', type: 'int64', dims: [] }],
      outputs: [OF_TOKENS('text_embeds')],
    },
    { pooling: ['mean'], output: 'text_embeds', contextLength: 8192 },
  ],
  ['mxbai-embed-large-v1', { config: BERT, files: pooled('cls_token') }, { pooling: ['cls'] }],
  [
    'e5-mistral-7b-instruct',
    {
      config: {
        model_type: 'mistral',
        architectures: ['MistralModel'],
        pad_token_id: 2,
        max_position_embeddings: 32_768,
      },
      files: pooled('lasttoken', 'Normalize'),
      inputs: [...PLAIN, IDS('position_ids')],
    },
    { pooling: ['lastToken'], contextLength: 32_768, firstPosition: 0, paddingId: 2 },
  ],
  [
    'Qwen3-Embedding',
    { ...QWEN3, files: pooled('lasttoken', 'Normalize') },
    { pooling: ['lastToken'], contextLength: 32_768, isStated: true },
  ],
  [
    // Converted repositories leave out the modules.
    'Qwen3-Embedding without modules',
    QWEN3,
    { pooling: ['lastToken'], isStated: false, isNormalized: true },
  ],
  [
    'bge-small-en-v1.5 without modules',
    { config: { ...BERT, architectures: ['BertModel'] } },
    { pooling: ['mean'], isStated: false, isNormalized: true },
  ],
  [
    'bge-small-en-v1.5 without modules, with the option',
    { config: { ...BERT, architectures: ['BertModel'] }, pooling: 'cls' },
    { pooling: ['cls'], isStated: true, isNormalized: true },
  ],
  [
    // The weights of its two dense layers are in the graph alone.
    'embeddinggemma-300m',
    {
      config: { model_type: 'gemma3_text', architectures: ['Gemma3TextModel'] },
      files: {
        ...pooled('mean_tokens', 'Dense', 'Dense', 'Normalize'),
        '2_Dense/config.json': { in_features: 1024, out_features: 4096 },
      },
      inputs: PLAIN,
      outputs: [...HIDDEN, OF_TEXTS('sentence_embedding')],
    },
    { output: 'sentence_embedding' },
  ],
  [
    'bge-m3 with three heads',
    {
      config: XLM_R,
      files: pooled('cls_token', 'Normalize'),
      outputs: [OF_TOKENS('colbert_vecs'), OF_TOKENS('sparse_vecs'), OF_TEXTS('dense_vecs')],
    },
    { output: 'dense_vecs', contextLength: 8192 },
  ],
]

let folders = 0

async function readLayout({ config, files = {}, ...layout }: Layout): Promise<Json> {
  const folder = join(root, String(folders++))
  const tokenizer = { model: {}, added_tokens: [] }
  const all = { 'config.json': config, 'tokenizer.json': tokenizer, ...files }
  for (const [name, content] of Object.entries({ ...all, 'onnx/model.onnx': '' })) {
    await mkdir(join(folder, dirname(name)), { recursive: true })
    await writeFile(join(folder, name), JSON.stringify(content))
  }
  const read = await readEncoderFiles(folder, undefined, layout.pooling)
  const { head, ...rest } = read
  const { inputs = TYPED, outputs = HIDDEN } = layout
  checkInputs({ file: 'model.onnx', inputs }, ENCODER_INPUTS)
  const output = chooseOutput({ file: 'model.onnx', outputs }, head)
  return { ...rest, ...head, output: output.name }
}

describe('the published files of a model', () => {
  it.each(LAYOUTS)('are read: %s', async (_name, layout, expected) => {
    const output = layout.outputs === undefined ? { output: 'last_hidden_state' } : {}
    expect(await readLayout(layout)).toMatchObject({ ...output, ...expected })
  })
})
