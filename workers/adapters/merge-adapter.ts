import {
  cp,
  type FileHandle,
  mkdir,
  open,
  readdir,
  realpath,
  rename,
  rm,
  stat,
  writeFile,
} from 'node:fs/promises'
import { dirname, join, relative } from 'node:path'

import { defined } from '#shared/json.ts'
import { findDecoderFile } from '#workers/engine/model-files.ts'
import { withoutUnused } from '#workers/graph/extract.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import { type Constant, type GraphNode, type Model, makeNode } from '#workers/graph/model.ts'
import { readModelFile } from '#workers/graph/read-model.ts'
import { writeModel } from '#workers/graph/write-model.ts'
import { chooseFiles } from '#workers/models/choose-files.ts'
import { pathInside } from '#workers/models/inside-folder.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import { ELEMENT_TYPES } from '#workers/tensor/element-type.ts'

import { type FittedLayer, fitAdapter } from './fit-adapter.ts'
import type { PeftAdapter } from './peft-files.ts'
import { readWeights } from './read-weights.ts'
import { findLinearModules, isHalf, type LinearModule } from './target-modules.ts'

const GRAPH_FILE = 'model.onnx'
const DATA_FILE = 'model.onnx_data'
/** Where each tensor begins in the file of weights; readers map it by pages. */
const PAGE_BYTES = 4096
const COPY_BYTES = 8 << 20
/** Graphs and their weights, which are not copied. */
const OF_GRAPHS = /\.onnx$|\.onnx[_.]data|\.data$|(^|\/)weights\.pb$/

/**
 * Writes a model with an adapter folded into its weights, in the Hugging Face layout. The changed
 * layers have weights of full precision; all others stay as they are. The folder must not exist.
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
  try {
    const context = { runtime, file, folder: dirname(realFile), executionProvider: 'cpu' } as const
    const merged = new Map<LinearModule, Constant>()
    for (const module of modules) {
      const layer = layers.get(module.path)
      if (layer === undefined) continue
      const weights = await readWeights(context, { view, model }, module)
      addProduct(weights, layer, module)
      merged.set(module, await data.append(module, weights, isHalf(model.graph)))
    }
    const graph = withoutUnused(new GraphView(replaceModules(model, merged)))
    const constants: Constant[] = []
    for (const constant of graph.constants) constants.push(await data.keep(constant, realFile))
    const whole = { ...model, graph: { ...graph, constants } }
    await writeFile(join(staged, 'onnx', GRAPH_FILE), writeModel(whole))
  } finally {
    await data.close()
  }
  await copyRest(base, staged)
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

/** The graph in which the merged layers are products with constants. */
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

/** A file of weights that grows. */
class DataFile {
  readonly #handle: FileHandle
  /** Constants whose weights are in it. */
  readonly #own = new Set<Constant>()
  #end = 0

  private constructor(handle: FileHandle) {
    this.#handle = handle
  }

  static async create(path: string): Promise<DataFile> {
    return new DataFile(await open(path, 'w'))
  }

  /** Writes the weights of a layer. */
  async append(
    { path, inSize, outSize }: LinearModule,
    weights: Float32Array,
    isHalf: boolean,
  ): Promise<Constant> {
    const values = isHalf ? Float16Array.from(weights) : weights
    const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength)
    const { onnxType } = ELEMENT_TYPES[isHalf ? 'float16' : 'float32']
    const offset = this.#begin()
    await this.#write(bytes)
    const data = { kind: 'file', location: DATA_FILE, offset, length: bytes.length } as const
    const constant = { name: `${path}.merged`, onnxType, dims: [inSize, outSize], data }
    this.#own.add(constant)
    return constant
  }

  /** Copies a constant out of the files of another model; small ones stay in the graph. */
  async keep(constant: Constant, file: string): Promise<Constant> {
    const { data } = constant
    if (data.kind !== 'file' || this.#own.has(constant)) return constant
    const folder = dirname(file)
    const source = await open(await pathInside(folder, data.location))
    try {
      const length = data.length ?? (await source.stat()).size - data.offset
      const offset = this.#begin()
      for (let at = 0; at < length; ) {
        const size = Math.min(COPY_BYTES, length - at)
        const { buffer, bytesRead } = await source.read(
          Buffer.alloc(size),
          0,
          size,
          data.offset + at,
        )
        if (bytesRead === 0)
          throw new ModelLoadError(file, `the weights ${constant.name} are cut off`)
        await this.#write(buffer.subarray(0, bytesRead))
        at += bytesRead
      }
      return { ...constant, data: { kind: 'file', location: DATA_FILE, offset, length } }
    } finally {
      await source.close()
    }
  }

  async close(): Promise<void> {
    await this.#handle.close()
  }

  #begin(): number {
    this.#end = Math.ceil(this.#end / PAGE_BYTES) * PAGE_BYTES
    return this.#end
  }

  async #write(bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length; ) {
      const { bytesWritten } = await this.#handle.write(bytes, at, bytes.length - at, this.#end)
      at += bytesWritten
      this.#end += bytesWritten
    }
  }
}

/**
 * Copies configuration and tokenizer, which lie beside `onnx/`: other folders hold other forms of
 * the model. A manifest would name other checksums.
 */
async function copyRest(
  { folder, onnxFile }: { readonly folder: string; readonly onnxFile?: string },
  target: string,
): Promise<void> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const files: { path: string; bytes: number }[] = []
  for (const entry of entries) {
    const path = join(entry.parentPath, entry.name)
    const found = await stat(path).catch(() => undefined)
    if (found?.isFile()) files.push({ path: relative(folder, path), bytes: found.size })
  }
  const options = onnxFile === undefined ? {} : { onnxFile }
  for (const { path } of chooseFiles(files, { kind: 'completion', options })) {
    if (OF_GRAPHS.test(path) || dirname(path) !== '.') continue
    await cp(await realpath(await pathInside(folder, path)), join(target, path))
  }
}
