import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'

import { afterAll, afterEach, describe, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { generate, MODELS } from '#test/unit/workers/engine/generate.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import {
  type GraphNode,
  type GraphValue,
  int,
  type Model,
  makeConstant,
  makeNode,
} from '#workers/graph/model.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import {
  changedFolders,
  type Golden,
  golden,
  removeFolders,
  renamed,
  withNodes,
} from './changed-folders.ts'

// Models of decoder-families.test.ts with the differences that files of other exporters have.

const FLOAT32 = 1
const FLOAT16 = 10

const runtime = openRuntime()
afterAll(() => runtime.close())
const { folders, changed, check } = changedFolders(runtime)
afterEach(() => removeFolders(folders))

describe('a file of onnxruntime-genai', () => {
  it('takes the head size from genai_config.json if its caches do not state one', async () => {
    await check(await withOpenHeads(16), golden('llama-in-place'), 'in place')
  })

  it('is refused at load if genai_config.json has another head size', async () => {
    const options = { runtime, folder: await withOpenHeads(24), onnxFile: 'changed', slots: 1 }
    await expect(openTextEngine(options)).rejects.toMatchObject({
      name: 'ModelLoadError',
      message: expect.stringMatching(/^[^:]*changed\.onnx: its first run fails: [^:]*GroupQuery/),
    })
  })

  it('gets whole caches if layers with a window keep a ring of their last positions', async () => {
    const withWindow = (ring: 0 | 1) =>
      changed('llama-in-place', 'model', (model) =>
        withNodes(model, (node) => {
          if (node.operator !== 'GroupQueryAttention') return [node]
          const settings = { local_window_size: int(8), sliding_window_cache: int(ring) }
          return [{ ...node, attributes: { ...node.attributes, ...settings } }]
        }),
      )
    const [whole, ring] = [await withWindow(0), await withWindow(1)]
    const { ids } = golden('llama-in-place')
    const engine = await openTextEngine({ runtime, folder: whole, onnxFile: 'changed', slots: 1 })
    const { tokenIds } = await generate(engine, { promptTokenIds: ids })
    await engine.close()
    await check(ring, { ids, greedy: tokenIds }, 'in place')
  })

  it('with states named past.0.conv is read as one with past_conv.0', async () => {
    const rename = (name: string): string =>
      name.replace(/^(past|present)_conv\.(\d+)$/, '$1.$2.conv')
    const folder = await changed('lfm2', 'model', (model) => renamed(model, rename))
    await check(folder, golden('lfm2'), 'rewritten')
  })
})

describe('a file of optimum in half precision', () => {
  it('continues in single precision after its attention is rewritten', async () => {
    const folder = await changed('llama', 'model_fp16', withSingleAttention)
    await check(folder, { ...golden('llama'), ...variant('model_fp16') }, 'rewritten')
  })
})

describe('a file of torch.onnx.export', () => {
  it('with other names of caches and logits is rewritten, even if a cache states the number of rows', async () => {
    const names = new Map([['logits', 'linear_14']])
    for (const layer of [0, 1]) {
      for (const kind of ['key', 'value']) {
        names.set(`past_key_values.${layer}.${kind}`, `past_key_values_${kind}_cache_${layer}`)
        names.set(`present.${layer}.${kind}`, `cat_${kind.length}_${layer}`)
      }
    }
    const folder = await changed('llama', 'model', (model) => {
      return withRowsOfCache(
        renamed(model, (name) => names.get(name) ?? name),
        'past_key_values_value_cache_1',
      )
    })
    await check(folder, golden('llama'), 'rewritten')
  })
})

describe('a file of Olive', () => {
  it('whose quantized head has given the logits another name is rewritten', async () => {
    const rename = (name: string): string => (name === 'logits' ? 'logits_Q4' : name)
    const folder = await changed('llama', 'model', (model) => renamed(model, rename))
    await check(folder, golden('llama'), 'rewritten')
  })
})

describe('a file of transformers', () => {
  it('that accepts one token in a run is refused with the setting that frees the length', async () => {
    const folder = await changed('qwen3-transformers', 'model', ({ graph, ...model }) => {
      const fixed = (value: GraphValue): GraphValue =>
        /^(input_ids|position_ids)$/.test(value.name) ? { ...value, dims: ['batch', 1] } : value
      return { ...model, graph: { ...graph, inputs: graph.inputs.map(fixed) } }
    })
    const options = { runtime, folder, onnxFile: 'changed', slots: 1 }
    await expect(openTextEngine(options)).rejects.toMatchObject({
      name: 'ModelLoadError',
      message: expect.stringMatching(/not \[batch, 1\]; .*multi_token_decode=True/),
    })
  })
})

it('an encoder-decoder without its encoder is refused with the task that exports both', async () => {
  const folder = await changed('llama', 'model', (model) => model)
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ is_encoder_decoder: true }))
  await expect(openTextEngine({ runtime, folder, slots: 1 })).rejects.toThrow(
    /no encoder_model .*text2text-generation-with-past/,
  )
})

it.each(['minilm', 'classifier'])(
  '%s, which is no decoder, is refused by that reason',
  async (name) => {
    const options = { runtime, folder: join(MODELS, name), onnxFile: 'model', slots: 1 }
    await expect(openTextEngine(options)).rejects.toThrow('not a decoder')
  },
)

describe('a file that the optimizer of ONNX Runtime has changed', () => {
  it('is rewritten if its scale follows from the query before its transposition', async () => {
    const folder = await changed('gpt2', 'model', withMeasuredScale)
    await check(folder, golden('gpt2'), 'rewritten')
  })
})

describe('a snapshot of another tool, whose files are links', () => {
  it.each([
    ['llama', 'rewritten'],
    ['llama-in-place', 'in place'],
  ] as const)('has %s on the path %s, with its weights beside the graph', async (name, path) => {
    const repository = mkdtempSync(join(tmpdir(), 'millrace-links-'))
    folders.push(repository)
    const snapshot = join(repository, 'snapshots/0123abc')
    mkdirSync(snapshot, { recursive: true })
    mkdirSync(join(repository, 'blobs'))
    const source = join(MODELS, name === 'llama' ? 'llama-external' : name)
    const files = ['config.json', 'onnx/model.onnx']
    if (name === 'llama') files.push('onnx/model.onnx_data')
    for (const file of files) copyFileSync(join(source, file), join(snapshot, basename(file)))
    for (const [index, file] of files.entries()) {
      const blob = join(repository, 'blobs', `${index}f`)
      renameSync(join(snapshot, basename(file)), blob)
      symlinkSync(blob, join(snapshot, basename(file)))
    }
    await check(snapshot, golden(name), path)
  })
})

/** A folder of onnxruntime-genai whose caches state no head size, and whose configuration does. */
async function withOpenHeads(headSize: number): Promise<string> {
  const open = (value: GraphValue): GraphValue =>
    value.dims?.length === 4
      ? { ...value, dims: [...value.dims.slice(0, 3), 'kv_cache_dim'] }
      : value
  const folder = await changed('llama-in-place', 'model', ({ graph, ...model }) => {
    const { inputs, outputs } = graph
    return { ...model, graph: { ...graph, inputs: inputs.map(open), outputs: outputs.map(open) } }
  })
  rmSync(join(folder, 'config.json'))
  const genai = { context_length: 256, decoder: { head_size: headSize } }
  writeFileSync(join(folder, 'genai_config.json'), JSON.stringify({ model: genai }))
  return folder
}

/** The product with the values, and one more after it, in single precision. */
function withSingleAttention(model: Model): Model {
  const weights = new Set<string>()
  // Nodes are in the order of their computation.
  for (const { operator, inputs, outputs } of model.graph.nodes) {
    const isCast = operator === 'Cast' && weights.has(inputs[0] ?? '')
    if (operator === 'Softmax' || isCast) for (const name of outputs) weights.add(name)
  }
  const cast = (from: string, to: string, type: number): GraphNode =>
    makeNode('Cast', [from], to, { attributes: { to: int(type) } })
  const { graph } = withNodes(model, (node) => {
    const [first = '', second = ''] = node.inputs
    if (node.operator !== 'MatMul' || !weights.has(first)) return [node]
    const output = defined(node.outputs[0])
    return [
      cast(first, `${first}/single`, FLOAT32),
      cast(second, `${second}/single`, FLOAT32),
      { ...node, inputs: [`${first}/single`, `${second}/single`], outputs: [`${output}/single`] },
      makeNode('Mul', [`${output}/single`, 'one'], `${output}/times`),
      cast(`${output}/times`, output, FLOAT16),
    ]
  })
  const one = makeConstant('one', 'float32', [], Float32Array.of(1))
  return { ...model, graph: { ...graph, constants: [...graph.constants, one] } }
}

/** The numbers of rows in shapes, taken from a cache. */
function withRowsOfCache(model: Model, cache: string): Model {
  const producers = new Map(model.graph.nodes.map((node) => [node.outputs[0], node]))
  const shapes = new Set(
    model.graph.nodes.flatMap(({ operator, inputs }) =>
      operator === 'Reshape' ? [producers.get(inputs[1])] : [],
    ),
  )
  const { graph } = withNodes(model, (node) => {
    const [first, ...rest] = node.inputs
    const isRows = producers.get(first)?.operator === 'Unsqueeze'
    return shapes.has(node) && node.operator === 'Concat' && isRows
      ? [{ ...node, inputs: ['rows', ...rest] }]
      : [node]
  })
  const attributes = { start: int(0), end: int(1) }
  const rows = makeNode('Shape', [cache], 'rows', { attributes })
  return { ...model, graph: { ...graph, nodes: [rows, ...graph.nodes] } }
}

/** Scores multiplied by 1 ÷ √size, where size is that of the last axis of the query. */
function withMeasuredScale(model: Model): Model {
  const producers = new Map(model.graph.nodes.map((node) => [node.outputs[0], node]))
  const to = { to: int(FLOAT32) }
  const { graph } = withNodes(model, (node) => {
    const [scores, scale] = node.inputs
    const product = producers.get(scores)
    const query = producers.get(product?.inputs[0])
    const isScaled = node.operator === 'Mul' || node.operator === 'Div'
    if (!isScaled || product?.operator !== 'MatMul' || query?.operator !== 'Transpose')
      return [node]
    const name = `${defined(scale)}/${defined(query.outputs[0])}`
    return [
      makeNode('Shape', [defined(query.inputs[0])], `${name}/shape`),
      makeNode('Gather', [`${name}/shape`, 'last'], `${name}/size`),
      makeNode('Cast', [`${name}/size`], `${name}/float`, { attributes: to }),
      makeNode('Sqrt', [`${name}/float`], `${name}/root`),
      makeNode('Div', [defined(scores), `${name}/root`], node.outputs),
    ]
  })
  const last = makeConstant('last', 'int64', [], BigInt64Array.of(3n))
  return { ...model, graph: { ...graph, constants: [...graph.constants, last] } }
}

/** The output of ONNX Runtime for a file of llama in another number format. */
function variant(onnxFile: string): Pick<Golden, 'greedy'> {
  const text = readFileSync(join(MODELS, 'llama/golden.variants.json'), 'utf8')
  const { variants } = JSON.parse(text) as { variants: Record<string, Pick<Golden, 'greedy'>> }
  return defined(variants[onnxFile])
}

it('integers of 32 bits are read like those of 64', async () => {
  const INT32 = 6
  const INT64 = 7
  const folder = await changed('llama', 'model', (model) => {
    const names = new Set(['input_ids', 'attention_mask', 'position_ids'])
    const wide = (name: string): string => (names.has(name) ? `${name} (64 bits)` : name)
    const { graph } = withNodes(model, (node) => [{ ...node, inputs: node.inputs.map(wide) }])
    const casts = [...names].map((name) =>
      makeNode('Cast', [name], wide(name), { attributes: { to: int(INT64) } }),
    )
    const inputs = graph.inputs.map((input) =>
      names.has(input.name) ? { ...input, onnxType: INT32 } : input,
    )
    return { ...model, graph: { ...graph, inputs, nodes: [...casts, ...graph.nodes] } }
  })
  await check(folder, golden('llama'), 'rewritten')
})

it('a graph of one row runs text by text', async () => {
  const folder = await changed('llama', 'model', (model) => {
    const inputs = model.graph.inputs.map((input) => ({
      ...input,
      dims: [1, ...(input.dims ?? []).slice(1)],
    }))
    return { ...model, graph: { ...model.graph, inputs } }
  })
  await check(folder, golden('llama'), 'rewritten')
})
