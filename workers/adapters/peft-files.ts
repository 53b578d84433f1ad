import { setImmediate } from 'node:timers/promises'

import { isRecord } from '#shared/json.ts'
import { readJson } from '#workers/models/folder-json.ts'
import { pathInside } from '#workers/models/inside-folder.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { StoredType } from '#workers/tensor/float-types.ts'
import {
  readSafetensors,
  type StoredTensor,
  writeSafetensors,
} from '#workers/tensor/safetensors.ts'

/** Files of an adapter, as PEFT names them. */
export const ADAPTER_FILES = ['adapter_config.json', 'adapter_model.safetensors'] as const

/** A low-rank change of one linear layer: weights + scale · b · a. */
export interface LowRank {
  readonly rank: number
  /** alpha ÷ rank, or alpha ÷ √rank of a rank-stabilized adapter. */
  readonly scale: number
  readonly inSize: number
  readonly outSize: number
  /** [rank, in] */
  readonly a: Float32Array
  /** [out, rank] */
  readonly b: Float32Array
}

/** A LoRA adapter: the changed layers by their path in PyTorch. */
export interface PeftAdapter {
  readonly modules: ReadonlyMap<string, LowRank>
}

/** Bounds of adapters that are read. */
interface AdapterLimits {
  readonly rankMax: number
  readonly bytesMax: number
}

/**
 * Reads the adapter in a folder. Throws `ModelLoadError` that names the field or tensor for
 * anything that cannot be served exactly: methods other than plain LoRA, further trained weights,
 * wrong shapes, ranks above the limit, NaN and infinity.
 */
export async function readPeftAdapter(
  folder: string,
  { rankMax, bytesMax }: AdapterLimits,
): Promise<PeftAdapter> {
  const config = await readJson(folder, ADAPTER_FILES[0])
  const scaleOf = readScales(folder, config)
  const tensors = await readTensors(folder, bytesMax)
  const modules = new Map<string, LowRank>()
  const partners = new Set<string>()
  for (const [name, a] of tensors) {
    const part = parseName(folder, name)
    if (part.matrix === 'B') continue
    const partner = name.replace('.lora_A.', '.lora_B.')
    const b = tensors.get(partner)
    if (b === undefined) throw fault(folder, `the tensor ${partner} is missing`)
    partners.add(partner)
    // Checking every element of a large adapter at once would block the event loop.
    await setImmediate()
    modules.set(part.path, readLowRank(folder, { name, partner, a, b, rankMax, scaleOf }))
  }
  for (const name of tensors.keys()) {
    if (parseName(folder, name).matrix === 'A' || partners.has(name)) continue
    throw fault(folder, `the tensor ${name.replace('.lora_B.', '.lora_A.')} is missing`)
  }
  if (modules.size === 0) throw fault(folder, `${ADAPTER_FILES[1]} has no tensors`)
  return { modules }
}

/** The settings of a new adapter, the same for all of its modules. */
interface NewAdapter {
  readonly rank: number
  readonly alpha: number
  readonly modules: ReadonlyMap<string, Pick<LowRank, 'inSize' | 'outSize' | 'a' | 'b'>>
  /** The readable name of the base model's source. */
  readonly baseModel?: string
}

/** The files of an adapter in PEFT's format. */
export function writePeftAdapter(
  { rank, alpha, modules, baseModel }: NewAdapter,
  { type = 'F32' }: { readonly type?: StoredType } = {},
): Record<(typeof ADAPTER_FILES)[number], Buffer> {
  const tensors = new Map<string, StoredTensor>()
  for (const [path, { inSize, outSize, a, b }] of modules) {
    const stem = `base_model.model.${path}`
    tensors.set(`${stem}.lora_A.weight`, { dims: [rank, inSize], values: a })
    tensors.set(`${stem}.lora_B.weight`, { dims: [outSize, rank], values: b })
  }
  const lastNames = new Set(
    [...modules.keys()].map((path) => path.slice(path.lastIndexOf('.') + 1)),
  )
  const config = {
    peft_type: 'LORA',
    task_type: 'CAUSAL_LM',
    base_model_name_or_path: baseModel ?? null,
    r: rank,
    lora_alpha: alpha,
    lora_dropout: 0,
    bias: 'none',
    fan_in_fan_out: false,
    target_modules: [...lastNames].toSorted(),
    inference_mode: true,
    use_rslora: false,
    use_dora: false,
    modules_to_save: null,
    rank_pattern: {},
    alpha_pattern: {},
  }
  return {
    'adapter_config.json': Buffer.from(`${JSON.stringify(config, undefined, 2)}\n`),
    'adapter_model.safetensors': writeSafetensors(tensors, { type }),
  }
}

function fault(folder: string, reason: string): ModelLoadError {
  return new ModelLoadError(folder, reason)
}

async function readTensors(
  folder: string,
  bytesMax: number,
): Promise<ReadonlyMap<string, StoredTensor>> {
  const [, name] = ADAPTER_FILES
  try {
    return await readSafetensors(await pathInside(folder, name), { bytesMax })
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    throw fault(folder, code === 'ENOENT' ? `${name} is missing` : message)
  }
}

const NAME = /^(?:base_model\.model\.)?(.+)\.lora_([AB])\.(?:default\.)?weight$/

function parseName(folder: string, name: string): { path: string; matrix: 'A' | 'B' } {
  const [, path, matrix] = NAME.exec(name) ?? []
  if (path === undefined) {
    throw fault(
      folder,
      `the tensor ${name} is not a matrix of a plain LoRA adapter (lora_A, lora_B)`,
    )
  }
  return { path, matrix: matrix as 'A' | 'B' }
}

function readLowRank(
  folder: string,
  pair: {
    readonly name: string
    readonly partner: string
    readonly a: StoredTensor
    readonly b: StoredTensor
    readonly rankMax: number
    readonly scaleOf: ScaleOf
  },
): LowRank {
  const { name, partner, a, b, rankMax, scaleOf } = pair
  const [rank, inSize] = a.dims
  const [outSize, width] = b.dims
  if (a.dims.length !== 2 || rank === undefined || inSize === undefined || a.values.length === 0) {
    throw fault(folder, `the tensor ${name} is [${a.dims.join(', ')}], not [rank, in]`)
  }
  if (b.dims.length !== 2 || outSize === undefined || width !== rank || b.values.length === 0) {
    throw fault(folder, `the tensor ${partner} is [${b.dims.join(', ')}], not [out, ${rank}]`)
  }
  if (rank > rankMax) {
    throw fault(folder, `the tensor ${name} has rank ${rank}, more than the limit of ${rankMax}`)
  }
  for (const [tensor, { values }] of [[name, a] as const, [partner, b] as const]) {
    if (!areFinite(values)) {
      throw fault(folder, `the tensor ${tensor} has elements that are NaN or infinite`)
    }
  }
  const { path } = parseName(folder, name)
  const scaled = scaleOf(path)
  if (scaled.rank !== rank) {
    throw fault(
      folder,
      `the tensor ${name} has rank ${rank}, but ${ADAPTER_FILES[0]} says ${scaled.rank}`,
    )
  }
  return { rank, scale: scaled.scale, inSize, outSize, a: a.values, b: b.values }
}

/** A loop: `every` would call a function for each of millions of elements. */
function areFinite(values: Float32Array): boolean {
  for (const value of values) if (!Number.isFinite(value)) return false
  return true
}

type ScaleOf = (path: string) => { readonly rank: number; readonly scale: number }

/**
 * Settings that change the computation of an adapter, or add weights, unless they have these
 * values.
 */
const PLAIN: Readonly<Record<string, readonly unknown[]>> = {
  use_dora: [false],
  modules_to_save: [],
  lora_bias: [false],
  bias: ['none'],
  use_qalora: [false],
  use_bdlora: [false],
  layer_replication: [],
  trainable_token_indices: [],
  target_parameters: [],
  alora_invocation_tokens: [],
  arrow_config: [],
  kasa_config: [],
  monteclora_config: [],
  // The other initializations change the base model as well.
  init_lora_weights: [true, false, 'gaussian', 'eva', 'orthogonal'],
}

/** Checks adapter_config.json and reads the scale of each module from it. */
function readScales(folder: string, config: Readonly<Record<string, unknown>>): ScaleOf {
  const wrong = (field: string, must: string): ModelLoadError => {
    const shown = JSON.stringify(config[field])?.slice(0, 100) ?? 'missing'
    return fault(folder, `${ADAPTER_FILES[0]}: ${field} is ${shown}, ${must}`)
  }
  if (config.peft_type !== 'LORA') throw wrong('peft_type', 'but only "LORA" can be served')
  for (const [field, accepted] of Object.entries(PLAIN)) {
    const value = config[field]
    const isUnset = value === undefined || value === null
    const isEmpty = Array.isArray(value) && value.length === 0
    if (!isUnset && !isEmpty && !accepted.includes(value)) {
      throw wrong(field, 'which cannot be served')
    }
  }
  const { r, lora_alpha: alpha = 8, use_rslora: isStabilized = false } = config
  if (!isRank(r)) throw wrong('r', 'but must be a whole number above 0')
  if (!isFiniteNumber(alpha)) throw wrong('lora_alpha', 'but must be a number')
  if (typeof isStabilized !== 'boolean') throw wrong('use_rslora', 'but must be true or false')
  const ranks = readPattern(config.rank_pattern, isRank)
  if (ranks === undefined) throw wrong('rank_pattern', 'but must have names and ranks')
  const alphas = readPattern(config.alpha_pattern, isFiniteNumber)
  if (alphas === undefined) throw wrong('alpha_pattern', 'but must have names and numbers')
  return (path) => {
    const rank = ranks(path) ?? r
    return { rank, scale: (alphas(path) ?? alpha) / (isStabilized ? Math.sqrt(rank) : rank) }
  }
}

function isRank(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) > 0
}

function isFiniteNumber(value: unknown): value is number {
  return Number.isFinite(value)
}

/** The form of patterns in practice. Other regular expressions could take unlimited time. */
const SIMPLE = /^\^?[\w.\\]{1,200}$/
const PATTERNS_MAX = 10_000

/** The value of the first pattern that is a path or the end of one; undefined without one. */
function readPattern(
  value: unknown,
  isValid: (entry: unknown) => entry is number,
): ((path: string) => number | undefined) | undefined {
  const entries = Object.entries(isRecord(value) ? value : {})
  if ((value ?? undefined) !== undefined && !isRecord(value)) return undefined
  const isSound = entries.every(([name, entry]) => SIMPLE.test(name) && isValid(entry))
  if (!isSound || entries.length > PATTERNS_MAX) return undefined
  const names = new Map<string, number>()
  const paths = new Map<string, number>()
  for (const [pattern, entry] of entries) {
    const name = pattern.replaceAll('\\', '').replace(/^\^/, '')
    const known = pattern.startsWith('^') ? paths : names
    if (!known.has(name)) known.set(name, entry as number)
  }
  return (path) => {
    for (let at = 0; at >= 0; at = path.indexOf('.', at + 1)) {
      const end = at === 0 ? path : path.slice(at + 1)
      const found = (at === 0 ? paths.get(end) : undefined) ?? names.get(end)
      if (found !== undefined) return found
    }
    return undefined
  }
}
