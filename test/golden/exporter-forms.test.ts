import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, afterEach, describe, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { generate, MODELS } from '#test/unit/workers/engine/generate.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { type GraphNode, int, type Model, makeConstant, makeNode } from '#workers/graph/model.ts'
import { readModelFile } from '#workers/graph/read-model.ts'
import { writeModel } from '#workers/graph/write-model.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

// Models of decoder-families.test.ts with the differences that files of other exporters have.

interface Golden {
  readonly ids: readonly number[]
  readonly greedy: readonly number[]
}

const FLOAT32 = 1
const FLOAT16 = 10

const runtime = openRuntime()
afterAll(() => runtime.close())
const folders: string[] = []
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true })
})

describe('a file of optimum in half precision', () => {
  it('that goes on in single precision after its attention is rewritten', async () => {
    const folder = await changed('llama', 'model_fp16', withSingleAttention)
    await check(folder, { ...golden('llama'), ...variant('model_fp16') }, 'rewritten')
  })
})

/** A folder with the configuration of a fixture and its graph after a change. */
async function changed(
  name: string,
  onnxFile: string,
  change: (model: Model) => Model,
): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-exporter-'))
  folders.push(folder)
  // Weights of a graph that was read stay in its file.
  const weights = join(folder, `${onnxFile}.onnx`)
  copyFileSync(join(MODELS, name, 'onnx', `${onnxFile}.onnx`), weights)
  copyFileSync(join(MODELS, name, 'config.json'), join(folder, 'config.json'))
  writeFileSync(join(folder, 'changed.onnx'), writeModel(change(await readModelFile(weights))))
  return folder
}

/** The golden tokens alone, beside shorter texts, and after a prefix that the cache holds. */
async function check(folder: string, { ids, greedy }: Golden, cachePath: string): Promise<void> {
  const onnxFile = folder.includes('millrace-exporter-') ? 'changed' : 'model'
  const engine = await openTextEngine({ runtime, folder, onnxFile, slots: 3, intraOpThreads: 1 })
  try {
    expect(engine.cachePath).toBe(cachePath)
    const ask = async (length: number, cacheScope: string): Promise<readonly number[]> => {
      const request = { promptTokenIds: ids.slice(0, length), maxNewTokens: greedy.length }
      return (await generate(engine, { ...request, cacheScope })).tokenIds
    }
    const lengths = [ids.length - 2, ids.length, 3]
    const alone: (readonly number[])[] = []
    for (const length of lengths) alone.push(await ask(length, `alone ${length}`))
    expect(alone[1]).toEqual(greedy)
    const together = (scope: (length: number) => string) =>
      Promise.all(lengths.map((length) => ask(length, scope(length))))
    expect(await together((length) => `beside ${length}`)).toEqual(alone)
    // Prompts of one scope that begin alike continue what the first of them has left.
    expect(await together(() => 'shared')).toEqual(alone)
  } finally {
    await engine.close()
  }
}

function withNodes(model: Model, change: (node: GraphNode) => readonly GraphNode[]): Model {
  return { ...model, graph: { ...model.graph, nodes: model.graph.nodes.flatMap(change) } }
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

function golden(name: string): Golden {
  return JSON.parse(readFileSync(join(MODELS, name, 'golden.json'), 'utf8')) as Golden
}

/** What ONNX Runtime answers on a file of llama in another number format. */
function variant(onnxFile: string): Pick<Golden, 'greedy'> {
  const text = readFileSync(join(MODELS, 'llama/golden.variants.json'), 'utf8')
  const { variants } = JSON.parse(text) as { variants: Record<string, Pick<Golden, 'greedy'>> }
  return defined(variants[onnxFile])
}
