import { describe, expect, it } from 'vitest'

import { TokenEmbedder } from '#workers/engine/token-embedder.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { TensorSpec } from '#workers/runtime/specs.ts'

const inputs: readonly TensorSpec[] = [{ name: 'input_ids', type: 'int64', dims: ['b', 's'] }]
const made: TensorSpec = { name: 'inputs_embeds', type: 'float32', dims: ['b', 's', 32] }
const perLayer: TensorSpec = { name: 'per_layer_inputs', type: 'float32', dims: ['b', 's', 4, 8] }

describe('a graph that embeds tokens', () => {
  it.each<[string, readonly TensorSpec[]]>([
    ['float32 embeddings of 32 elements', [{ ...made, dims: ['b', 's', 16] }, perLayer]],
    ['per_layer_inputs of [batch, length, 4, 8]', [made]],
    ['per_layer_inputs of [batch, length, 4, 8]', [made, { ...perLayer, dims: ['b', 's', 32] }]],
    ['per_layer_inputs of [batch, length, 4, 8]', [made, { ...perLayer, type: 'float16' }]],
  ])('is refused if it does not make %s, as the decoder reads them', (named, outputs) => {
    const session = { file: 'embed_tokens.onnx', inputs, outputs } as unknown as ModelSession
    const open = () =>
      new TokenEmbedder({} as Runtime, session, { size: 32, type: 'float32', perLayer })
    expect(open).toThrow(named)
  })
})
