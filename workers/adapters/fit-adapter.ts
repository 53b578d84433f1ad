import { setImmediate } from 'node:timers/promises'

import type { LowRank, PeftAdapter } from './peft-files.ts'
import { FUSED_PARTS, type LinearModule, moduleKey } from './target-modules.ts'

/** The product that an adapter adds to one module: input · a · b, with the scale in b. */
export interface FittedLayer {
  readonly rank: number
  /** [in, rank] */
  readonly a: Float32Array
  /** [rank, out] */
  readonly b: Float32Array
}

/** An adapter in the layout of a model's graph. */
export interface FittedAdapter {
  /** Unique to each fitted adapter. */
  readonly key: string
  /** The largest of its layers. */
  readonly rank: number
  readonly bytes: number
  /** By the path of the module in the graph. */
  readonly layers: ReadonlyMap<string, FittedLayer>
}

type Target = Pick<LinearModule, 'path' | 'inSize' | 'outSize'>

let count = 0

/**
 * Fits an adapter to the modules of a graph. Throws an `Error` that names the tensor when it has
 * weights for a module that the graph does not have, or weights of another size.
 */
export async function fitAdapter(
  adapter: PeftAdapter,
  targets: readonly Target[],
): Promise<FittedAdapter> {
  const left = new Map([...adapter.modules].map(([path, low]) => [moduleKey(path), { path, low }]))
  const layers = new Map<string, FittedLayer>()
  for (const target of targets) {
    const key = moduleKey(target.path)
    const whole = left.get(key)
    const parts = whole ? [whole] : partsOf(key).map((part) => left.get(part))
    if (parts.every((part) => part === undefined)) continue
    // Laying out a large adapter takes longer than the event loop may be blocked.
    await setImmediate()
    layers.set(target.path, fitLayer(target, whole ? [whole] : parts))
    for (const name of whole ? [key] : partsOf(key)) left.delete(name)
  }
  const [unknown] = left.values()
  if (unknown !== undefined) {
    throw new Error(`the tensor ${unknown.path}.lora_A.weight is of no linear layer of the model`)
  }
  const all = [...layers.values()]
  count += 1
  return {
    key: String(count),
    rank: Math.max(...all.map(({ rank }) => rank)),
    bytes: all.reduce((sum, { a, b }) => sum + a.byteLength + b.byteLength, 0),
    layers,
  }
}

interface Part {
  readonly path: string
  readonly low: LowRank
}

/** The keys of the modules that the graph has fused into one. */
function partsOf(key: string): readonly string[] {
  const at = key.lastIndexOf('.') + 1
  const name = key.slice(at)
  const parts = Object.hasOwn(FUSED_PARTS, name) ? (FUSED_PARTS[name] ?? []) : []
  return parts.map((part) => key.slice(0, at) + part)
}

/**
 * Fuses the parts into one layer: their a side by side, their b on a diagonal of blocks, so that
 * each part has its own outputs. All parts must be present, because the size of an absent one is
 * unknown.
 */
function fitLayer(target: Target, parts: readonly (Part | undefined)[]): FittedLayer {
  const { inSize, outSize } = target
  const present = parts.filter((part) => part !== undefined)
  const [first] = present
  for (const { path, low } of present) {
    if (low.inSize === inSize && (parts.length > 1 || low.outSize === outSize)) continue
    const isOfInput = low.inSize !== inSize
    const [matrix, found] = isOfInput ? ['A', low.inSize] : ['B', low.outSize]
    const wanted = isOfInput ? inSize : outSize
    const side = isOfInput ? 'inputs' : 'outputs'
    throw new Error(
      `the tensor ${path}.lora_${matrix}.weight has ${found} ${side}, but the layer of the model ${wanted}`,
    )
  }
  const total = present.reduce((sum, { low }) => sum + low.outSize, 0)
  if (present.length < parts.length || total !== outSize) {
    throw new Error(
      `the tensor ${first?.path}.lora_B.weight is of a part of ${target.path}: all parts must be there, with ${outSize} outputs together, not ${total}`,
    )
  }
  const rank = present.reduce((sum, { low }) => sum + low.rank, 0)
  const layer = { rank, a: new Float32Array(inSize * rank), b: new Float32Array(rank * outSize) }
  let [rankFrom, outFrom] = [0, 0]
  for (const { low } of present) {
    transposeInto(layer.a, low.a, {
      rows: low.rank,
      columns: inSize,
      stride: rank,
      offset: rankFrom,
      scale: 1,
    })
    const offset = rankFrom * outSize + outFrom
    transposeInto(layer.b, low.b, {
      rows: low.outSize,
      columns: low.rank,
      stride: outSize,
      offset,
      scale: low.scale,
    })
    rankFrom += low.rank
    outFrom += low.outSize
  }
  return layer
}

/** Writes the scaled transposition of a [rows, columns] matrix into a wider one. */
function transposeInto(
  target: Float32Array,
  source: Float32Array,
  place: {
    readonly rows: number
    readonly columns: number
    readonly stride: number
    readonly offset: number
    readonly scale: number
  },
): void {
  const { rows, columns, stride, offset, scale } = place
  for (let row = 0; row < rows; row += 1) {
    for (let column = 0; column < columns; column += 1) {
      target[offset + column * stride + row] = (source[row * columns + column] as number) * scale
    }
  }
}
