import { defined } from '#shared/json.ts'
import {
  type Constant,
  type GraphValue,
  type Model,
  makeConstant,
  makeModel,
  makeValue,
} from '#workers/graph/model.ts'
import type { ElementType } from '#workers/tensor/element-type.ts'

import type { AttentionLayer } from './attention-layers.ts'
import {
  openModel,
  openProbe,
  type Probe,
  type ProbeContext,
  type ProbeResult,
} from './graph-probe.ts'
import {
  type AttentionSettings,
  attentionNodes,
  lengthNodes,
  shapeConstants,
} from './group-query.ts'
import {
  boundaryOf,
  feedsOf,
  type HeadShape,
  type LayerNames,
  type ProbeCase,
  randomValues,
} from './probe-feeds.ts'

/** Tables by which GroupQueryAttention rotates, one row for each position. */
export interface RotationTables {
  readonly cos: Float32Array
  readonly sin: Float32Array
  readonly width: number
}

/** Two attentions are the same when no element of their outputs, around 1, differs by more. */
const TOLERANCES = { float32: 1e-4, float16: 2e-2 } as const
/** Positions before and beside the last: prompts, chunks, decode steps. */
const CASES: readonly ProbeCase[] = [
  { past: 0, length: 7 },
  { past: 5, length: 3 },
  { past: 11, length: 1 },
]
/** Memory of the keys of the longest case. */
const PAST_ELEMENTS_MAX = 8 << 20
/** Maximum elements of the scores of the longest case if all its tokens are computed. */
const SCORE_ELEMENTS_MAX = 32 << 20
/** A window that hides fewer of the positions is taken for none. */
const SEEN_SHARE = 0.99
const SOFTCAP_MAX = 1e4

/**
 * Finds the GroupQueryAttention that is equivalent to a layer of the graph by running the layer
 * alone: its scale, its window and its softcap. Undefined when there is none, for instance with
 * biases by distance. The result is compared for prompts, chunks and single tokens, also far into a
 * text.
 */
export async function fitAttention(
  context: ProbeContext,
  model: Model,
  layer: AttentionLayer,
  shape: HeadShape & { readonly contextLength: number },
): Promise<AttentionSettings | undefined> {
  const { query, key, value, output } = layer
  const { type, numHeads, headDim, contextLength } = shape
  const boundary = boundaryOf(layer, { query, key, value }, type)
  const probe = await openProbe(context, model, { wanted: [output], boundary })
  if (probe === undefined) return undefined
  try {
    const { numCacheHeads, hasPast } = shape
    const longest = measuredPast({ numHeads, headDim, hasPast })
    const far = after(shape, Math.max(Math.min(contextLength - 2, longest), 1), 2)
    const { scale, softcap } = await measureScores(probe, layer, layer, shape)
    const seen = await measureWindow(probe, layer, shape, far.past + far.length - 2)
    const { type: outputType = type } = probe.outputs[0] ?? {}
    const settings: AttentionSettings = {
      numHeads,
      numCacheHeads,
      headDim,
      scale,
      window: seen,
      softcap,
      ...(outputType !== type && { outputType }),
    }
    const cases = [...casesOf(shape), far]
    const names = { query, key, value }
    const isSame = await agrees(context, { probe, layer, names, shape, settings, cases })
    return isSame ? settings : undefined
  } finally {
    await probe.close()
  }
}

/** A run of `length` tokens after `past` others; without a cache, the run includes the others. */
function after({ hasPast }: Pick<HeadShape, 'hasPast'>, past: number, length: number): ProbeCase {
  return hasPast ? { past, length } : { past: 0, length: past + length }
}

function casesOf(shape: HeadShape): readonly ProbeCase[] {
  return CASES.map(({ past, length }) => after(shape, past, length))
}

type Heads = Pick<HeadShape, 'numHeads' | 'headDim' | 'hasPast'>

/** The longest window that `fitAttention` finds; a layer with a longer one appears to have none. */
export function findableWindow(heads: Heads): number {
  return Math.floor(measuredPast(heads) * SEEN_SHARE)
}

/** Positions before the farthest measured token. */
function measuredPast({ numHeads, headDim, hasPast }: Heads): number {
  return hasPast
    ? Math.floor(PAST_ELEMENTS_MAX / (numHeads * headDim))
    : Math.floor(Math.sqrt(SCORE_ELEMENTS_MAX / numHeads))
}

/**
 * The same from before the rotation, with the rotation by tables. Undefined when the two differ.
 * The scale differs if the query is multiplied after its rotation.
 */
export async function fitRotation(
  context: ProbeContext,
  model: Model,
  fitted: {
    readonly layer: AttentionLayer
    readonly shape: HeadShape
    readonly settings: AttentionSettings
    readonly tables: RotationTables
  },
): Promise<AttentionSettings | undefined> {
  const { layer, shape, tables } = fitted
  const { rotary, value, output } = layer
  if (rotary === undefined) return undefined
  const names = { query: rotary.query, key: rotary.key, value }
  const boundary = boundaryOf(layer, names, shape.type)
  const probe = await openProbe(context, model, { wanted: [output], boundary })
  if (probe === undefined) return undefined
  try {
    // Tables may stretch what they rotate, twice in a score. The measured key is at position 1.
    const at = tables.width
    const stretch = defined(tables.cos[at]) ** 2 + defined(tables.sin[at]) ** 2
    const { scale, softcap } = await measureScores(probe, layer, names, shape)
    const settings = { ...fitted.settings, scale: nearUsual(scale / stretch, shape), softcap }
    const isSame = await agrees(context, {
      ...fitted,
      settings,
      probe,
      names,
      cases: casesOf(shape),
    })
    return isSame ? settings : undefined
  } finally {
    await probe.close()
  }
}

/**
 * Measures the score of a query and a key whose elements are all `element`. A key of zeros precedes
 * the key; its value has the weight 1 ÷ (1 + e^score).
 */
async function measureScore(
  probe: Probe,
  layer: AttentionLayer,
  names: LayerNames,
  { shape, element }: { readonly shape: HeadShape; readonly element: number },
): Promise<number> {
  const { numCacheHeads, headDim } = shape
  const run = after(shape, 1, 1)
  const values = shape.hasPast
    ? { query: element, key: element, value: 0, pastKey: 0, pastValue: 1 }
    : {
        query: element,
        key: eachHead(numCacheHeads, [0, element], headDim),
        value: eachHead(numCacheHeads, [1, 0], headDim),
        pastKey: 0,
        pastValue: 0,
      }
  const [result] = await probe.run(feedsOf(layer, names, shape, { ...run, values }))
  return Math.log(1 / defined(result?.values[(run.length - 1) * headDim]) - 1)
}

/** Creates heads in which all elements of a position have the same number. */
function eachHead(numHeads: number, numbers: readonly number[], headDim: number): Float32Array {
  const row = numbers.flatMap((number) => new Array<number>(headDim).fill(number))
  return Float32Array.from(Array.from({ length: numHeads }, () => row).flat())
}

/** The factor of attention scores, and their bound. */
async function measureScores(
  probe: Probe,
  layer: AttentionLayer,
  names: LayerNames,
  shape: HeadShape,
): Promise<{ scale: number; softcap: number | undefined }> {
  const { headDim, type } = shape
  const measure = (element: number): Promise<number> =>
    measureScore(probe, layer, names, { shape, element })
  const elementFor = (score: number, scale: number): number => Math.sqrt(score / (scale * headDim))
  // Small scores are hardly capped.
  const first = (await measure(headDim ** -0.25)) / Math.sqrt(headDim)
  const small = elementFor(0.05, Math.max(first, 1e-6))
  const rough = (await measure(small)) / (small * small * headDim)
  const wanted = type === 'float16' ? 8 : 25
  const softcap = findSoftcap(wanted, await measure(elementFor(wanted, rough)))
  const element = elementFor(1, rough)
  const score = await measure(element)
  const uncapped = softcap === undefined ? score : softcap * Math.atanh(score / softcap)
  return { scale: nearUsual(uncapped / (element * element * headDim), shape), softcap }
}

/** Scales computed with rounding are assumed to be one of a few common values. */
function nearUsual(scale: number, { headDim, type }: HeadShape): number {
  const precision = type === 'float16' ? 5e-3 : 1e-4
  const usual = [headDim ** -0.5, headDim ** -0.25, 1, 1 / headDim]
  return usual.find((value) => Math.abs(scale / value - 1) < precision) ?? scale
}

/** Large scores are smaller than the scale makes them when they are capped: cap · tanh(x ÷ cap). */
function findSoftcap(wanted: number, score: number): number | undefined {
  if (!(score < wanted * 0.999)) return undefined
  let [low, high] = [1e-3, SOFTCAP_MAX]
  for (let round = 0; round < 60; round += 1) {
    const middle = (low + high) / 2
    if (middle * Math.tanh(wanted / middle) < score) low = middle
    else high = middle
  }
  return Math.round(low * 10) / 10
}

/** With equal scores every visible position has the same weight. */
async function measureWindow(
  probe: Probe,
  layer: AttentionLayer,
  shape: HeadShape,
  past: number,
): Promise<number | undefined> {
  const { numCacheHeads, headDim } = shape
  const run = after(shape, past, 1)
  const last = Array.from({ length: run.length }, (_, at) => Number(at === run.length - 1))
  const value = eachHead(numCacheHeads, last, headDim)
  const values = { query: 0, key: 0, value, pastKey: 0, pastValue: 0 }
  const [result] = await probe.run(feedsOf(layer, layer, shape, { ...run, values }))
  const seen = Math.round(1 / defined(result?.values[(run.length - 1) * headDim]))
  // Half precision does not count thousands of positions exactly; the comparison decides.
  return seen < past * SEEN_SHARE ? seen : undefined
}

async function agrees(
  context: ProbeContext,
  compared: {
    readonly probe: Probe
    readonly layer: AttentionLayer
    readonly names: LayerNames
    readonly shape: HeadShape
    readonly settings: AttentionSettings
    readonly tables?: RotationTables
    readonly cases: readonly ProbeCase[]
  },
): Promise<boolean> {
  const { probe, layer, names, shape, settings, tables, cases } = compared
  const other = await openModel(context, attentionModel(layer, names, settings, shape.type, tables))
  try {
    for (const { past, length } of cases) {
      const feeds = feedsOf(layer, names, shape, {
        past,
        length,
        values: randomValues(shape, past, length),
      })
      const [expected, found] = [await probe.run(feeds), await other.run(feeds)]
      if (difference(defined(expected[0]), defined(found[0])) > TOLERANCES[shape.type]) return false
    }
    return true
  } finally {
    await other.close()
  }
}

function difference(a: ProbeResult, b: ProbeResult): number {
  if (a.values.length !== b.values.length) return Infinity
  let most = 0
  for (let index = 0; index < a.values.length; index += 1) {
    const distance = Math.abs(defined(a.values[index]) - defined(b.values[index]))
    if (!(distance <= most)) most = distance
  }
  return Number.isNaN(most) ? Infinity : most
}

/** A GroupQueryAttention alone, with the tensor names of the graph that it is compared with. */
function attentionModel(
  layer: AttentionLayer,
  names: LayerNames,
  settings: AttentionSettings,
  type: ElementType,
  tables: RotationTables | undefined,
): Model {
  const { nodes, constants } = lengthNodes()
  const { pastKey, pastValue, output } = layer
  const tableNames = tables && { cos: 'cos', sin: 'sin' }
  const inputs: GraphValue[] = [
    makeValue('attention_mask', 'int64', ['', '']),
    ...[names.query, names.key, names.value, pastKey, pastValue].map((name) => {
      return makeValue(name, type, ['', '', '', ''])
    }),
  ]
  const attention = attentionNodes(
    { ...names, pastKey, pastValue, output, tables: tableNames, ...PRESENTS },
    settings,
    { untransposed: () => undefined, isTransposed: false },
  )
  return makeModel({
    name: 'attention',
    nodes: [...nodes, ...attention],
    constants: [
      ...constants,
      ...shapeConstants(settings),
      ...(tables ? tableConstants(tables, { cos: 'cos', sin: 'sin' }, type) : []),
    ],
    inputs,
    outputs: [makeValue(output, settings.outputType ?? type, ['', '', '', ''])],
    opsets: [...STANDARD, { domain: 'com.microsoft', version: 1 }],
  })
}

const PRESENTS = { presentKey: 'present_key', presentValue: 'present_value' }
const STANDARD = [{ domain: '', version: 17 }]

/** The tables as constants of a graph. */
export function tableConstants(
  { cos, sin, width }: RotationTables,
  names: { readonly cos: string; readonly sin: string },
  type: ElementType,
): Constant[] {
  const make = (name: string, values: Float32Array): Constant => {
    const data = type === 'float16' ? Float16Array.from(values) : values
    return makeConstant(name, type, [values.length / width, width], data)
  }
  return [make(names.cos, cos), make(names.sin, sin)]
}
