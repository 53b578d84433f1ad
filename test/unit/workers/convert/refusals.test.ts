import {
  cpSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import type { StoredTensor } from '#workers/tensor/safetensors.ts'

import { type Config, changeConfig, changeTensors, openCheckpoints } from './checkpoint-folders.ts'

const { root, copyOf, convert } = openCheckpoints()
afterAll(() => rmSync(root, { recursive: true }))

/** A safetensors file of this header and so many bytes behind it. */
function fileOf(
  header: string,
  dataBytes: number,
  headerBytes = Buffer.byteLength(header),
): Buffer {
  const size = Buffer.alloc(8)
  size.writeBigUInt64LE(BigInt(headerBytes))
  return Buffer.concat([size, Buffer.from(header), Buffer.alloc(dataBytes)])
}

/** How a checkpoint is spoilt, and what the refusal says. */
const HOSTILE: readonly (readonly [
  what: string,
  spoil: (folder: string) => void | Promise<void>,
  message: string,
])[] = [
  ...Object.entries({
    'an unknown architecture': [
      { architectures: ['MambaForCausalLM'] },
      'MambaForCausalLM cannot be converted',
    ],
    'a name of every object': [{ architectures: ['toString'] }, 'toString cannot be converted'],
    'no architecture': [{ architectures: undefined }, 'architectures is missing'],
    'an unknown rope type': [
      { rope_parameters: { rope_type: 'dynamic', factor: 2 } },
      'rope type dynamic is not supported',
    ],
    'a rope type without its factor': [
      { rope_parameters: { rope_type: 'linear' } },
      'factor is missing',
    ],
    'more rotated than there is': [
      { rope_parameters: { partial_rotary_factor: 3 } },
      'elements of a head are rotated',
    ],
    'GPTQ weights': [{ quantization_config: { quant_method: 'gptq' } }, 'quantized already (gptq)'],
    'AWQ weights': [{ quantization_config: { quant_method: 'awq' } }, 'quantized already (awq)'],
    'fp8 weights': [{ quantization_config: { quant_method: 'fp8' } }, 'quantized already (fp8)'],
    'an unknown activation': [{ hidden_act: 'relu2' }, 'the activation relu2 is not supported'],
    'heads that share no keys evenly': [{ num_key_value_heads: 3 }, 'num_key_value_heads is 3'],
    'no layers': [{ num_hidden_layers: 0 }, 'num_hidden_layers is 0'],
    'a million layers': [{ num_hidden_layers: 1e6 }, 'num_hidden_layers is 1000000'],
    'more layers than tensors': [
      { num_hidden_layers: 3 },
      'model.layers.2.input_layernorm.weight is missing',
    ],
    'fewer layers than tensors': [{ num_hidden_layers: 1 }, 'model.layers.1.'],
    'another width': [{ intermediate_size: 64 }, 'but config.json says [64, 32]'],
    'another vocabulary': [
      { vocab_size: 95 },
      'embed_tokens.weight is [96, 32], but config.json says [95, 32]',
    ],
    'a family without its norms': [
      { architectures: ['LlamaForCausalLM'] },
      'k_norm.weight has no place in a LlamaForCausalLM',
    ],
    'a layer type of another kind': [
      { use_sliding_window: true, layer_types: ['chunked_attention', 'full_attention'] },
      'the layer type chunked_attention is not supported',
    ],
    'texts instead of numbers': [{ hidden_size: '32' }, 'hidden_size is "32"'],
    'a head that is missing': [{ tie_word_embeddings: false }, 'lm_head.weight is missing'],
  } satisfies Record<string, [Config, string]>).map(
    ([what, [change, message]]) =>
      [
        what,
        (folder: string) => changeConfig(folder, (config) => ({ ...config, ...change })),
        message,
      ] as const,
  ),
  [
    'no weights',
    (folder) => rmSync(join(folder, 'model.safetensors')),
    'model.safetensors is missing',
  ],
  [
    'a file that is cut off',
    (folder) => truncateSync(join(folder, 'model.safetensors'), 20_000),
    'extends beyond the end of the file',
  ],
  [
    'a header of more than 100 MB',
    (folder) => {
      const path = join(folder, 'model.safetensors')
      writeFileSync(path, fileOf('{}', 0, 100_000_001))
      truncateSync(path, 200_000_000)
    },
    'more than the 100000000 that are read',
  ],
  [
    'a header that is longer than the file',
    (folder) => writeFileSync(join(folder, 'model.safetensors'), fileOf('{}', 0, 1_000_000)),
    'is not a safetensors file',
  ],
  [
    'a header of endless nesting',
    (folder) => writeFileSync(join(folder, 'model.safetensors'), fileOf('['.repeat(1_000_000), 0)),
    'too complex',
  ],
  ...Object.entries({
    'offsets out of range': [
      '{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}',
      'extends beyond the end',
    ],
    'offsets in the wrong order': [
      '{"a":{"dtype":"F32","shape":[0],"data_offsets":[8,4]}}',
      'cannot be read',
    ],
    'negative offsets': [
      '{"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}}',
      'cannot be read',
    ],
    'a shape of other bytes': [
      '{"a":{"dtype":"BF16","shape":[3],"data_offsets":[0,8]}}',
      'cannot be read',
    ],
    'tensors that overlap': [
      '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}',
      'overlap',
    ],
    'a header that is not an object': ['[1,2]', 'is not a safetensors file'],
  } satisfies Record<string, [string, string]>).map(
    ([what, [header, message]]) =>
      [
        what,
        (folder: string) => writeFileSync(join(folder, 'model.safetensors'), fileOf(header, 8)),
        message,
      ] as const,
  ),
  [
    'integers as weights',
    (folder) => {
      const path = join(folder, 'model.safetensors')
      writeFileSync(
        path,
        readFileSync(path).toString('latin1').replace('"BF16"', '"I16" '),
        'latin1',
      )
    },
    'has the type I16',
  ],
  [
    'NaN among the weights',
    (folder) =>
      changeTensors(folder, (tensors) => {
        ;(tensors.get('model.norm.weight') as StoredTensor).values[3] = Number.NaN
      }),
    'model.norm.weight has elements that are NaN or infinite',
  ],
  [
    'a tensor of nothing that is known',
    (folder) =>
      changeTensors(folder, (tensors) => {
        tensors.set('model.layers.0.mlp.gate.weight', { dims: [1], values: new Float32Array(1) })
      }),
    'mlp.gate.weight has no place',
  ],
  [
    'weights outside the folder',
    (folder) => {
      const path = join(folder, 'model.safetensors')
      cpSync(path, join(dirname(folder), 'outside'))
      rmSync(path)
      symlinkSync('../outside', path)
    },
    "outside the model's folder",
  ],
  [
    'an index that leads out of the folder',
    (folder) => {
      cpSync(join(folder, 'model.safetensors'), join(dirname(folder), 'outside'))
      const index = JSON.stringify({ weight_map: { a: '../outside' } })
      writeFileSync(join(folder, 'model.safetensors.index.json'), index)
    },
    "outside the model's folder",
  ],
  [
    'an index that names a tensor of no file',
    (folder) => {
      const index = JSON.stringify({ weight_map: { a: 'model.safetensors' } })
      writeFileSync(join(folder, 'model.safetensors.index.json'), index)
    },
    'the tensor a is in model.safetensors.index.json, but in no file',
  ],
  [
    'an index of no files',
    (folder) => writeFileSync(join(folder, 'model.safetensors.index.json'), '{"weight_map":[]}'),
    'has no weight_map',
  ],
]

describe('a checkpoint with', () => {
  it.each(HOSTILE)('%s is refused by name, and nothing is left', async (_, spoil, message) => {
    const folder = copyOf('qwen3')
    await spoil(folder)
    await expect(convert(folder)).rejects.toThrow(message)
    const left = readdirSync(dirname(folder)).filter((name) => name !== 'outside')
    expect(left).toEqual(['checkpoint'])
  })

  it('activations beyond half precision is not converted to it', async () => {
    await expect(convert(copyOf('gemma3'), 'fp16')).rejects.toThrow('exceed half precision')
  })
})
