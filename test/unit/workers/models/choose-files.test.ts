import { describe, expect, it } from 'vitest'

import type { ModelOptions } from '#shared/catalogue-options.ts'
import { chooseFiles } from '#workers/models/choose-files.ts'

function check(paths: readonly string[], options: ModelOptions, expected: readonly string[]): void {
  const files = paths.map((path) => ({ path, bytes: 10 }))
  const chosen = chooseFiles(files, { options }).map(({ path }) => path)
  expect(chosen.toSorted()).toEqual(expected.toSorted())
}

const DECODER = [
  'onnx/model.onnx',
  'onnx/model.onnx_data',
  'onnx/model.onnx_data_1',
  'onnx/model_fp16.onnx',
  'onnx/model_fp16.onnx_data',
  'onnx/model_q4.onnx',
]

describe('choosing files from a source', () => {
  it.each<[string, readonly string[], ModelOptions, readonly string[]]>([
    ['weights in blocks before others', DECODER, {}, DECODER.slice(5)],
    [
      '32-bit weights where they are asked for',
      DECODER,
      { onnxFile: 'model' },
      DECODER.slice(0, 3),
    ],
    [
      'weights before activations that are quantized as the graph runs',
      ['onnx/model_int8.onnx', 'onnx/model_quantized.onnx', 'onnx/model.onnx'],
      {},
      ['onnx/model.onnx'],
    ],
    ['half precision on a GPU', DECODER, { executionProvider: 'cuda' }, DECODER.slice(3, 5)],
    ['the weights that were asked for', DECODER, { onnxFile: 'model_q4' }, DECODER.slice(5)],
    [
      'the settings of ColBERT and the layers of PyLate without the weights of the whole model',
      ['artifact.metadata', 'model.onnx', 'model.safetensors', '1_Dense/model.safetensors'],
      {},
      ['artifact.metadata', 'model.onnx', '1_Dense/model.safetensors'],
    ],
    [
      'tensors in files of their own beside the graph',
      [
        ...[
          'config.json',
          'onnx/model.onnx',
          'onnx/model.onnx_data',
          'onnx/Constant_7_attr__value',
        ],
        ...['onnx/onnx__MatMul_3442', 'onnx/model.layers.0.mlp.up_proj.weight'],
        ...['onnx/model_fp16.onnx_data', 'onnx/tokenizer.json', 'onnx/sentencepiece.bpe.model'],
        ...['README.md', 'LICENSE', '.gitattributes', 'pytorch_model.bin'],
      ],
      {},
      [
        ...[
          'config.json',
          'onnx/model.onnx',
          'onnx/model.onnx_data',
          'onnx/Constant_7_attr__value',
        ],
        ...['onnx/onnx__MatMul_3442', 'onnx/model.layers.0.mlp.up_proj.weight'],
      ],
    ],
    [
      'no more than the graph where everything is in one folder',
      [
        ...['config.json', 'model.onnx', 'README.md', 'LICENSE', '.gitattributes', 'spiece.model'],
        ...['pytorch_model.bin', 'model.safetensors', 'rust_model.ot', 'tf_model.h5'],
        'tokenizer.json',
      ],
      {},
      ['config.json', 'model.onnx', 'tokenizer.json'],
    ],
    [
      'the files of a tokenizer that has no tokenizer.json',
      ['model.onnx', 'source.spm', 'target.spm', 'spiece.model', 'vocab.json', 'other.model'],
      {},
      ['model.onnx', 'source.spm', 'spiece.model', 'vocab.json'],
    ],
    [
      'files of tiktoken and tekken where there is no tokenizer.json',
      ['model.onnx', 'qwen.tiktoken', 'tiktoken.model', 'tekken.json'],
      {},
      ['model.onnx', 'qwen.tiktoken', 'tiktoken.model', 'tekken.json'],
    ],
    [
      'the tokenizer.json alone where tekken.json says the same',
      ['model.onnx', 'tekken.json', 'tokenizer.json', 'tokenizer.model'],
      {},
      ['model.onnx', 'tokenizer.json'],
    ],
    [
      'the graph of later runs where transformers wrote two',
      ['config.json', 'decode.onnx', 'decode.onnx.data', 'prefill.onnx', 'prefill.onnx.data'],
      {},
      ['config.json', 'decode.onnx', 'decode.onnx.data'],
    ],
    [
      'a graph by its path, beside the configuration of the whole source',
      ['config.json', 'onnx/model.onnx', 'onnx/model_O3.onnx', 'onnx/config.json'],
      { onnxFile: 'onnx/model_O3' },
      ['config.json', 'onnx/model_O3.onnx'],
    ],
    [
      'a graph by its path, with the nearest configuration',
      [
        ...['config.json', 'cpu/int4/genai_config.json', 'cpu/int4/model.onnx'],
        ...['cpu/int4/model.onnx.data', 'cuda/int4/genai_config.json', 'cuda/int4/model.onnx'],
      ],
      { onnxFile: 'cuda/int4/model.onnx' },
      ['cuda/int4/genai_config.json', 'cuda/int4/model.onnx'],
    ],
    [
      'a voice by its path, with the settings of its name',
      [
        ...['voices.json', 'en/en_US/amy/low/en_US-amy-low.onnx', 'en/en_US/amy/low/MODEL_CARD'],
        ...['en/en_US/amy/low/en_US-amy-low.onnx.json', 'de/de_DE/eva/x_low/de_DE-eva-x_low.onnx'],
      ],
      { onnxFile: 'en/en_US/amy/low/en_US-amy-low' },
      ['en/en_US/amy/low/en_US-amy-low.onnx', 'en/en_US/amy/low/en_US-amy-low.onnx.json'],
    ],
    [
      'graphs that lie beside the configuration',
      ['config.json', 'model.onnx', 'decoder_model.onnx'],
      {},
      ['config.json', 'model.onnx'],
    ],
    [
      'the encoder and the merged decoder of a speech model',
      [
        'onnx/encoder_model.onnx',
        'onnx/encoder_model_quantized.onnx',
        'onnx/decoder_model.onnx',
        'onnx/decoder_with_past_model.onnx',
        'onnx/decoder_model_merged_quantized.onnx',
        'preprocessor_config.json',
      ],
      {},
      [
        'onnx/encoder_model_quantized.onnx',
        'onnx/decoder_model_merged_quantized.onnx',
        'preprocessor_config.json',
      ],
    ],
    [
      'the embeddings of tokens and images beside a decoder of both',
      [
        'onnx/decoder_model_merged.onnx',
        'onnx/decoder_model_merged_q4.onnx',
        'onnx/embed_tokens.onnx',
        'onnx/vision_encoder.onnx',
        'onnx/vision_encoder_q4.onnx',
        'preprocessor_config.json',
      ],
      {},
      [
        'onnx/decoder_model_merged_q4.onnx',
        'onnx/embed_tokens.onnx',
        'onnx/vision_encoder_q4.onnx',
        'preprocessor_config.json',
      ],
    ],
    [
      'both decoders of a speech model where they are not merged',
      ['onnx/encoder_model.onnx', 'onnx/decoder_model.onnx', 'onnx/decoder_with_past_model.onnx'],
      {},
      ['onnx/encoder_model.onnx', 'onnx/decoder_model.onnx', 'onnx/decoder_with_past_model.onnx'],
    ],
    [
      'every part of an image pipeline that is run',
      [
        'model_index.json',
        'scheduler/scheduler_config.json',
        'tokenizer/merges.txt',
        'tokenizer/vocab.json',
        'unet/model.onnx',
        'unet/weights.pb',
        'unet/diffusion_pytorch_model.bin',
        'vae_decoder/model.onnx',
        'safety_checker/model.onnx',
        'safety_checker/config.json',
      ],
      {},
      [
        'model_index.json',
        'scheduler/scheduler_config.json',
        'tokenizer/merges.txt',
        'tokenizer/vocab.json',
        'unet/model.onnx',
        'unet/weights.pb',
        'vae_decoder/model.onnx',
      ],
    ],
    [
      'tokenizer, templates and pooling, but no other formats',
      [
        'onnx/model_quantized.onnx',
        'chat_template.jinja',
        'tokenizer.json',
        '1_Pooling/config.json',
        'modules.json',
        'pytorch_model.bin.index.json',
        'model.safetensors',
        'openvino/openvino_model.xml',
        'README.md',
      ],
      {},
      [
        'onnx/model_quantized.onnx',
        'chat_template.jinja',
        'tokenizer.json',
        '1_Pooling/config.json',
        'modules.json',
      ],
    ],
  ])('takes %s', (_name, paths, options, expected) => check(paths, options, expected))

  it('chooses full precision for vectors, and the layers after their pooling', () => {
    const paths = [
      ...['onnx/model.onnx', '1_Pooling/config.json', '2_Dense/config.json'],
      '2_Dense/model.safetensors',
    ]
    const others = ['onnx/model_quantized.onnx', '2_Dense/pytorch_model.bin', 'model.safetensors']
    const files = [...paths, ...others].map((path) => ({ path, bytes: 10 }))
    const chosen = chooseFiles(files, { kind: 'embedding', options: {} })
    expect(chosen.map(({ path }) => path).toSorted()).toEqual(paths.toSorted())
  })

  it.each([
    [{}, ['onnx/text_model.onnx', 'onnx/vision_model.onnx']],
    [{ onnxFile: 'text_model_fp16' }, ['onnx/text_model_fp16.onnx', 'onnx/vision_model_fp16.onnx']],
  ])(
    'takes the towers of texts and images, not both in one, with options %o',
    (options, expected) => {
      const paths = ['model', 'text_model', 'vision_model'].flatMap((stem) =>
        ['', '_fp16', '_quantized'].map((suffix) => `onnx/${stem}${suffix}.onnx`),
      )
      const files = paths.map((path) => ({ path, bytes: 10 }))
      const chosen = chooseFiles(files, { kind: 'embedding', options })
      expect(chosen.map(({ path }) => path)).toEqual(expected)
    },
  )

  it('chooses block-quantized weights for an encoder and a decoder of text', () => {
    const names = ['encoder_model', 'decoder_model_merged']
    const paths = ['', '_q4', '_quantized'].flatMap((suffix) =>
      names.map((name) => `onnx/${name}${suffix}.onnx`),
    )
    const files = paths.map((path) => ({ path, bytes: 10 }))
    const chosen = chooseFiles(files, { kind: 'completion', options: {} })
    expect(chosen.map(({ path }) => path)).toEqual(paths.slice(2, 4))
  })

  it('chooses full precision for a single speech graph', () => {
    const names = ['onnx/model_q4.onnx', 'onnx/model.onnx', 'onnx/model_quantized.onnx']
    const files = names.map((path) => ({ path, bytes: 10 }))
    const chosen = chooseFiles(files, { kind: 'audio', options: {} })
    expect(chosen.map(({ path }) => path)).toEqual(['onnx/model.onnx'])
  })

  it.each<[ModelOptions, string]>([
    [{}, 'kokoro-v1.0.onnx'],
    [{ onnxFile: 'kokoro-v1.0.int8' }, 'kokoro-v1.0.int8.onnx'],
    [{ executionProvider: 'cuda' }, 'kokoro-v1.0.onnx'],
  ])(
    'takes one graph of kokoro-onnx and the archive of its voices with options %o',
    (options, graph) => {
      const variants = ['.fp16-gpu', '.fp16', '.int8', ''].map((end) => `kokoro-v1.0${end}.onnx`)
      const paths = [...variants, 'config.json', 'voices-v1.0.bin', 'README.md', 'sample.wav']
      const files = paths.map((path) => ({ path, bytes: 10 }))
      const chosen = chooseFiles(files, { kind: 'speech', options }).map(({ path }) => path)
      expect(chosen).toEqual([graph, 'config.json', 'voices-v1.0.bin'])
    },
  )

  it('chooses the voices of onnx-community, also as arrays, without their checkpoints', () => {
    const voices = ['voices/af.bin', 'voices/bm_lewis.npy']
    const wanted = ['onnx/model.onnx', 'tokenizer.json', ...voices]
    const others = ['onnx/model_q8f16.onnx', 'onnx/model_fp16.onnx', 'voices/af.pt']
    const files = [...wanted, ...others].map((path) => ({ path, bytes: 10 }))
    const chosen = chooseFiles(files, { kind: 'speech', options: {} })
    expect(chosen.map(({ path }) => path)).toEqual(wanted)
  })

  it.each<[ModelOptions, string]>([
    [{}, 'cpu_and_mobile/cpu-int4-rtn-block-32-acc-level-4'],
    [{ executionProvider: 'cuda' }, 'cuda/cuda-fp16'],
    [{ onnxFile: 'phi' }, 'directml/directml-int4'],
  ])('takes the folder of one variant of several with options %o: %s', (options, expected) => {
    const folders = [
      'cpu_and_mobile/cpu-int4-rtn-block-32',
      'cpu_and_mobile/cpu-int4-rtn-block-32-acc-level-4',
      'cuda/cuda-fp16',
      'cuda/cuda-int4',
      'directml/directml-int4',
    ]
    const names = ['genai_config.json', 'tokenizer.json', 'tokenizer.model']
    const files = folders.flatMap((folder) => {
      const graph = folder.startsWith('directml') ? 'phi.onnx' : 'model.onnx'
      return [...names, graph, `${graph}.data`].map((name) => ({
        path: `${folder}/${name}`,
        bytes: 1,
      }))
    })
    const all = [{ path: 'config.json', bytes: 1 }, ...files]
    const graph = options.onnxFile === undefined ? 'model.onnx' : 'phi.onnx'
    const wanted = [...names.slice(0, 2), graph, `${graph}.data`]
    expect(chooseFiles(all, { options }).map(({ path }) => path)).toEqual(
      wanted.map((name) => `${expected}/${name}`),
    )
  })

  it('reports that there is nothing to run', () => {
    const files = [{ path: 'config.json', bytes: 10 }]
    expect(() => chooseFiles(files, { options: {} })).toThrow('no ONNX file')
    expect(() => chooseFiles(files, { options: { onnxFile: 'model_q4' } })).toThrow(
      'no onnx/model_q4.onnx',
    )
  })
})

describe('choosing files from a checkpoint', () => {
  const rest = ['config.json', 'tokenizer.json', 'chat_template.jinja']
  const shards = ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors']
  const index = 'model.safetensors.index.json'
  const others = ['pytorch_model.bin', 'onnx/model.onnx', 'original/params.json', 'README.md']

  it.each([
    ['one file', ['model.safetensors'], ['model.safetensors']],
    ['several and their index', [...shards, index], [...shards, index]],
    ['its index before a whole', [...shards, index, 'model.safetensors'], [...shards, index]],
  ])('takes weights in %s, configuration and tokenizer', (_, weights, expected) => {
    const files = [...rest, ...others, ...weights].map((path) => ({ path, bytes: 10 }))
    const chosen = chooseFiles(files, { options: {}, layout: 'checkpoint' })
    expect(chosen.map(({ path }) => path)).toEqual([...rest, ...expected])
  })

  it('names the file that is missing', () => {
    const files = others.map((path) => ({ path, bytes: 10 }))
    expect(() => chooseFiles(files, { options: {}, layout: 'checkpoint' })).toThrow(
      'there is no model.safetensors among its files',
    )
  })
})
