import { mkdir, open, realpath, rename, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'

import { defined } from '#shared/json.ts'
import { findDecoderFile } from '#workers/engine/model-files.ts'
import { DataFile } from '#workers/graph/data-file.ts'
import { withoutUnused } from '#workers/graph/extract.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import { type Constant, type GraphNode, type Model, makeNode } from '#workers/graph/model.ts'
import { readModelFile } from '#workers/graph/read-model.ts'
import { writeModel } from '#workers/graph/write-model.ts'
import { copyConfiguration } from '#workers/models/copy-configuration.ts'
import { pathInside } from '#workers/models/inside-folder.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import { ELEMENT_TYPES } from '#workers/tensor/element-type.ts'
import { narrowFloats } from '#workers/tensor/float-types.ts'

import { type FittedLayer, fitAdapter } from './fit-adapter.ts'
import type { PeftAdapter } from './peft-files.ts'
import { readWeights } from './read-weights.ts'
import { findLinearModules, isHalf, type LinearModule } from './target-modules.ts'

const GRAPH_FILE = 'model.onnx'
const DATA_FILE = 'model.onnx_data'
const COPY_BYTES = 8 << 20

/**
 * Writes a model with an adapter merged into its weights, in the Hugging Face layout. The changed
 * layers have weights of full precision; all others are unchanged. The folder must not exist.
 */
export async function mergeAdapter(
  runtime: Runtime,
  base: { readonly folder: string; readonly onnxFile?: string },
  { adapter, target }: { readonly adapter: PeftAdapter; readonly target: string },
): Promise<void> {
  const file = await findDecoderFile(base.folder, base)
  const realFile = await realpath(file)
  const model = await readModelFile(realFile)
  const view = new GraphView(model.graph)
  const modules = findLinearModules(view)
  const { layers } = await fitAdapter(adapter, modules)
  const staged = `${target}.part`
  await rm(staged, { recursive: true, force: true })
  await mkdir(join(staged, 'onnx'), { recursive: true })
  const data = await DataFile.create(join(staged, 'onnx', DATA_FILE))
  const type = isHalf(model.graph) ? 'float16' : 'float32'
  try {
    const context = { runtime, file, folder: dirname(realFile), executionProvider: 'cpu' } as const
    const merged = new Map<LinearModule, Constant>()
    for (const module of modules) {
      const layer = layers.get(module.path)
      if (layer === undefined) continue
      const weights = await readWeights(context, { view, model }, module)
      addProduct(weights, layer, module)
      const matrix = {
        name: `${module.path}.merged`,
        onnxType: ELEMENT_TYPES[type].onnxType,
        dims: [module.inSize, module.outSize],
      }
      merged.set(module, await data.append(matrix, [narrowFloats(weights, type)]))
    }
    const own = new Set(merged.values())
    const graph = withoutUnused(new GraphView(replaceModules(model, merged)))
    const constants: Constant[] = []
    for (const constant of graph.constants) {
      // Small constants stay in the graph.
      const isKept = own.has(constant) || !isInFile(constant)
      constants.push(
        isKept ? constant : await data.append(constant, readConstant(constant, realFile)),
      )
    }
    const whole = { ...model, graph: { ...graph, constants } }
    await writeFile(join(staged, 'onnx', GRAPH_FILE), writeModel(whole))
  } finally {
    await data.close()
  }
  const { folder, onnxFile } = base
  const options = onnxFile === undefined ? {} : { onnxFile }
  await copyConfiguration(folder, staged, { kind: 'completion', options })
  await rename(staged, target)
}

/** Adds a · b to weights of [in, out]. */
function addProduct(
  weights: Float32Array,
  { a, b, rank }: FittedLayer,
  { inSize, outSize }: LinearModule,
): void {
  for (let row = 0; row < inSize; row += 1) {
    for (let index = 0; index < rank; index += 1) {
      const factor = defined(a[row * rank + index])
      const [to, from] = [row * outSize, index * outSize]
      for (let column = 0; column < outSize; column += 1) {
        weights[to + column] = defined(weights[to + column]) + factor * defined(b[from + column])
      }
    }
  }
}

/** The graph with the merged layers as products with constants. */
function replaceModules({ graph }: Model, merged: ReadonlyMap<LinearModule, Constant>) {
  const byOutput = new Map([...merged.keys()].map((module) => [module.output, module]))
  const nodes = graph.nodes.flatMap((node): GraphNode[] => {
    const module = node.outputs.map((name) => byOutput.get(name)).find((found) => found)
    const weights = module && merged.get(module)
    return weights === undefined ? [node] : productOf(module as LinearModule, weights.name)
  })
  return { ...graph, nodes, constants: [...graph.constants, ...merged.values()] }
}

function productOf({ node, form, input, output }: LinearModule, weights: string): GraphNode[] {
  if (node.operator === 'Gemm') {
    const { transB: _transposed, ...attributes } = node.attributes
    const [, , ...bias] = node.inputs
    return [{ ...node, attributes, inputs: [input, weights, ...bias] }]
  }
  // A bias is the last input of these operators.
  const bias = form === 'matrix' ? '' : (node.inputs[node.operator === 'MatMulNBits' ? 5 : 4] ?? '')
  if (bias === '') return [makeNode('MatMul', [input, weights], output)]
  const product = `${output}/product`
  return [makeNode('MatMul', [input, weights], product), makeNode('Add', [product, bias], output)]
}

/** The elements of a constant in the files of a model. */
async function* readConstant(
  { name, data }: Constant & { readonly data: { readonly kind: 'file' } },
  file: string,
): AsyncGenerator<Uint8Array> {
  const source = await open(await pathInside(dirname(file), data.location))
  try {
    const length = data.length ?? (await source.stat()).size - data.offset
    for (let at = 0; at < length; ) {
      const size = Math.min(COPY_BYTES, length - at)
      const { buffer, bytesRead } = await source.read(Buffer.alloc(size), 0, size, data.offset + at)
      if (bytesRead === 0) throw new ModelLoadError(file, `the weights ${name} are cut off`)
      yield buffer.subarray(0, bytesRead)
      at += bytesRead
    }
  } finally {
    await source.close()
  }
}

function isInFile(
  constant: Constant,
): constant is Constant & { readonly data: { readonly kind: 'file' } } {
  return constant.data.kind === 'file'
}
