import {
  checkDecoderInputs,
  DecoderRun,
  type DecoderSessions,
  STATES,
} from '#workers/engine/encoder-decoder/decoder-run.ts'
import type { EncoderStates } from '#workers/engine/encoder-decoder/encoder-states.ts'
import type { Model } from '#workers/graph/model.ts'
import { findOperators } from '#workers/graph/operators.ts'
import { readModelFile } from '#workers/graph/read-model.ts'
import { closeOnFailure, openAll } from '#workers/runtime/close-on-failure.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'
import { openSessionPool, type SessionPool } from '#workers/runtime/session-pool.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'
import { allocateElements, type ElementType } from '#workers/tensor/element-type.ts'

import type { AlignmentHead } from './alignment-heads.ts'
import { attentionName, exposeAttentions, type WantedHeads } from './expose-attentions.ts'

/** The encoder's output for one window. */
export type WindowStates = EncoderStates

/**
 * A decoder in either layout of the hub: one merged graph, or one graph for the first run and one
 * for later runs.
 */
export interface SpeechDecoder {
  /** Element type of the encoder states that the decoder takes. */
  readonly stateType: ElementType
  /** A row of a run can change the others, so rows must run one by one. */
  readonly isRowCoupled: boolean
  /** The number of runs that are useful in parallel. */
  readonly poolSize: number
  /** The precision of the cross-attentions of each layer that returns them. */
  readonly attentionTypes: ReadonlyMap<number, ElementType>
  /** The index of a head in the cross-attentions of its layer. */
  indexOf(head: AlignmentHead): number
  /**
   * Computes one prompt per window, all of the same length. A run without others gets all cores.
   */
  begin(
    prompts: readonly (readonly number[])[],
    windows: readonly WindowStates[],
    isAlone?: boolean,
  ): Promise<DecoderRun>
  /** The cross-attentions of some layers over one row of tokens, which the caller disposes. */
  attend(
    tokenIds: readonly number[],
    window: WindowStates,
    layers: readonly number[],
  ): Promise<ReadonlyMap<number, Tensor>>
  close(): Promise<void>
}

const ATTENTION = /^cross_attentions\.(\d{1,4})$/

/**
 * Loads the decoder. Where its files do not return the cross-attentions of the wanted heads, they
 * are exposed if the graph shows them. Throws `ModelLoadError` when it has unknown inputs.
 */
export async function openSpeechDecoder(
  runtime: Runtime,
  files: readonly [string] | readonly [string, string],
  options: SessionOptions = {},
  wanted?: WantedHeads,
): Promise<SpeechDecoder> {
  const [file, ...others] = files
  const graphs = await Promise.all(files.map(readModelFile))
  const [graph] = graphs as [Model, Model?]
  const exposed = wanted && (await openExposed(runtime, { file, graph }, options, wanted))
  const opened = await openAll([
    Promise.resolve(exposed ?? openSessionPool(runtime, file, options)),
    ...others.map((other) => openSessionPool(runtime, other, options)),
  ])
  const close = async (): Promise<void> => {
    await Promise.all(opened.map((pool) => pool.close()))
  }
  const [first, later = first] = opened as [SessionPool, SessionPool?]
  return closeOnFailure({ close }, () => {
    for (const { wide } of opened) checkDecoderInputs(wide)
    const states = first.wide.inputs.find(({ name }) => name === STATES)
    const stateType = states?.type ?? 'float32'
    const choose = (isAlone: boolean): DecoderSessions => {
      const chosen = { first: first.choose(isAlone), later: later.choose(isAlone) }
      return { runtime, stateType, ...chosen }
    }
    return {
      stateType,
      isRowCoupled: graphs.some((model) => findOperators(model).hasDynamicQuantization),
      poolSize: first.poolSize,
      close,
      attentionTypes: findAttentions(first.wide),
      indexOf: (head) => (exposed && wanted ? indexOf(wanted.heads, head) : head.head),
      begin: (prompts, windows, isAlone = true) =>
        DecoderRun.begin(choose(isAlone), prompts, windows),
      attend: (tokenIds, window, layers) => attend(choose(false), { tokenIds, window, layers }),
    }
  })
}

/** The decoder with the attentions of some heads; undefined if the file is used unchanged. */
async function openExposed(
  runtime: Runtime,
  { file, graph }: { readonly file: string; readonly graph: Model },
  options: SessionOptions,
  wanted: WantedHeads,
): Promise<SessionPool | undefined> {
  const model = await exposeAttentions(file, graph, wanted)
  if (model === undefined) return undefined
  return openSessionPool(runtime, model, options).catch((error: unknown) => {
    if (error instanceof ModelLoadError) return undefined
    throw error
  })
}

function indexOf(heads: readonly AlignmentHead[], { layer, head }: AlignmentHead): number {
  return heads.filter((one) => one.layer === layer).findIndex((one) => one.head === head)
}

function findAttentions({ outputs }: ModelSession): ReadonlyMap<number, ElementType> {
  return new Map(
    outputs.flatMap(({ name, type, dims }) => {
      const layer = ATTENTION.exec(name)?.[1]
      const isUsable = (type === 'float32' || type === 'float16') && dims.length === 4
      return layer !== undefined && isUsable ? [[Number(layer), type] as const] : []
    }),
  )
}

async function attend(
  sessions: DecoderSessions,
  asked: {
    readonly tokenIds: readonly number[]
    readonly window: WindowStates
    readonly layers: readonly number[]
  },
): Promise<ReadonlyMap<number, Tensor>> {
  const { tokenIds, window, layers } = asked
  const names = layers.map(attentionName)
  const fetched = await DecoderRun.fetch(sessions, { prompt: tokenIds, states: window, names })
  return new Map(layers.map((layer) => [layer, fetched[attentionName(layer)] as Tensor] as const))
}

/** The states of each row, in the precision that the decoder expects. */
export function statesOfRows(states: Tensor, type: ElementType): readonly WindowStates[] {
  const [rows = 1, positions = 1] = states.dims
  const length = states.data.length / rows
  return Array.from({ length: rows }, (_, row) => {
    const data = allocateElements(type, length) as Float32Array
    data.set(states.data.subarray(row * length, (row + 1) * length) as Float32Array)
    return { data, positions }
  })
}
