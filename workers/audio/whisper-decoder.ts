import { closeOnFailure, openAll } from '#workers/runtime/close-on-failure.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'
import { openSessionPool, type SessionPool } from '#workers/runtime/session-pool.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'
import {
  allocateElements,
  countElements,
  type ElementType,
  type TensorData,
} from '#workers/tensor/element-type.ts'

/** The encoder's output for one window: `[positions, width]`, in the decoder's precision. */
export interface WindowStates {
  readonly data: TensorData
  readonly positions: number
}

/**
 * A decoder in either layout of the hub: one merged graph, or one graph for the first run and one
 * for later runs.
 */
export interface WhisperDecoder {
  /** Element type of the encoder states that the decoder takes. */
  readonly stateType: ElementType
  /** The number of runs that are worth making in parallel. */
  readonly poolSize: number
  /** The precision of the cross-attentions of each layer of which the decoder returns them. */
  readonly attentionTypes: ReadonlyMap<number, ElementType>
  /** Computes one prompt per window, all of the same length. A run that is alone gets all cores. */
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

const STATES = 'encoder_hidden_states'
const PAST = 'past_key_values'
const ATTENTION = /^cross_attentions\.(\d{1,4})$/

/** Loads the decoder. Throws `ModelLoadError` when it has unknown inputs. */
export async function openWhisperDecoder(
  runtime: Runtime,
  files: readonly [string] | readonly [string, string],
  options: SessionOptions = {},
): Promise<WhisperDecoder> {
  const opened = await openAll(files.map((file) => openSessionPool(runtime, file, options)))
  const close = async (): Promise<void> => {
    await Promise.all(opened.map((pool) => pool.close()))
  }
  const [first, later = first] = opened as [SessionPool, SessionPool?]
  return closeOnFailure({ close }, () => {
    for (const { wide } of opened) checkInputs(wide)
    const states = first.wide.inputs.find(({ name }) => name === STATES)
    const stateType = states?.type ?? 'float32'
    const choose = (isAlone: boolean): Sessions => {
      const chosen = { first: first.choose(isAlone), later: later.choose(isAlone) }
      return { runtime, stateType, ...chosen }
    }
    return {
      ...{ stateType, poolSize: first.poolSize, close },
      attentionTypes: findAttentions(first.wide),
      begin: (prompts, windows, isAlone = true) =>
        DecoderRun.begin(choose(isAlone), prompts, windows),
      attend: (tokenIds, window, layers) =>
        DecoderRun.attend(choose(false), { tokenIds, window, layers }),
    }
  })
}

function checkInputs(session: ModelSession): void {
  for (const { name } of session.inputs) {
    const isKnown =
      ['input_ids', STATES, 'use_cache_branch', 'cache_position'].includes(name) ||
      name.startsWith(`${PAST}.`)
    if (!isKnown) throw new ModelLoadError(session.file, `the input ${name} is not known`)
  }
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

interface Sessions {
  readonly runtime: Runtime
  readonly first: ModelSession
  readonly later: ModelSession
  readonly stateType: ElementType
}

/** Windows that are decoded together; every row is at the same position. */
export class DecoderRun {
  readonly #sessions: Sessions
  #rows: number
  #length = 0
  #states: Tensor
  /** Cache tensors by the name of their input. */
  readonly #past = new Map<string, Tensor>()
  #logits: TensorData = new Float32Array(0)
  #numPositions = 0

  private constructor(sessions: Sessions, windows: readonly WindowStates[]) {
    const { runtime, stateType } = sessions
    const [{ positions, data }] = windows as [WindowStates]
    this.#sessions = sessions
    this.#rows = windows.length
    const joined = allocateElements(stateType, data.length * windows.length) as Float32Array
    for (const [row, window] of windows.entries()) {
      joined.set(window.data as Float32Array, row * data.length)
    }
    this.#states = runtime.tensor(stateType, joined, [
      windows.length,
      positions,
      data.length / positions,
    ])
  }

  static async begin(
    sessions: Sessions,
    prompts: readonly (readonly number[])[],
    windows: readonly WindowStates[],
  ): Promise<DecoderRun> {
    const run = DecoderRun.#open(sessions, windows)
    await run.#advance(sessions.first, prompts)
    return run
  }

  static async attend(
    sessions: Sessions,
    asked: {
      readonly tokenIds: readonly number[]
      readonly window: WindowStates
      readonly layers: readonly number[]
    },
  ): Promise<ReadonlyMap<number, Tensor>> {
    const run = DecoderRun.#open(sessions, [asked.window])
    try {
      const wanted = Object.fromEntries(asked.layers.map((n) => [`cross_attentions.${n}`, null]))
      const fetched = await run.#run(sessions.first, [asked.tokenIds], wanted)
      return new Map(
        asked.layers.map((layer) => [layer, fetched[`cross_attentions.${layer}`] as Tensor]),
      )
    } finally {
      run.dispose()
    }
  }

  static #open(sessions: Sessions, windows: readonly WindowStates[]): DecoderRun {
    const run = new DecoderRun(sessions, windows)
    for (const { name, type, dims } of sessions.first.inputs) {
      if (!name.startsWith(PAST)) continue
      // The merged graph requires its cache inputs in the first run; they have zero positions
      // there.
      const shape = dims.map((dim, axis) => (axis === 0 ? run.#rows : axis === 2 ? 0 : Number(dim)))
      run.#past.set(name, sessions.runtime.zeros(type ?? 'float32', shape))
    }
    return run
  }

  get rows(): number {
    return this.#rows
  }

  /**
   * A copy of a row's logits at the last position, or at a prompt position counted from `begin`.
   */
  logits(row: number, position: number = this.#numPositions - 1): Float32Array {
    const vocabulary = this.#logits.length / (this.#rows * this.#numPositions)
    const start = (row * this.#numPositions + position) * vocabulary
    return Float32Array.from(
      this.#logits.subarray(start, start + vocabulary) as unknown as ArrayLike<number>,
    )
  }

  /** Appends one token to every row. */
  async step(tokenIds: readonly number[]): Promise<void> {
    await this.#advance(
      this.#sessions.later,
      tokenIds.map((id) => [id]),
    )
  }

  /** Keeps only these rows. */
  keep(rows: readonly number[]): void {
    const { runtime } = this.#sessions
    const pick = (tensor: Tensor): Tensor => {
      const size = countElements(tensor.dims) / this.#rows
      const data = allocateElements(tensor.type, size * rows.length) as Float32Array
      for (const [index, row] of rows.entries()) {
        data.set(tensor.data.subarray(row * size, (row + 1) * size) as Float32Array, index * size)
      }
      const picked = runtime.tensor(tensor.type, data, [rows.length, ...tensor.dims.slice(1)])
      tensor.dispose()
      return picked
    }
    this.#states = pick(this.#states)
    for (const [name, tensor] of this.#past) this.#past.set(name, pick(tensor))
    this.#rows = rows.length
  }

  dispose(): void {
    this.#states.dispose()
    for (const tensor of this.#past.values()) tensor.dispose()
    this.#past.clear()
  }

  async #advance(session: ModelSession, tokenIds: readonly (readonly number[])[]): Promise<void> {
    this.#takeOver(await this.#run(session, tokenIds, wanted(session, this.#length > 0)))
    const length = tokenIds[0]?.length ?? 0
    this.#length += length
    this.#numPositions = length
  }

  async #run(
    session: ModelSession,
    tokenIds: readonly (readonly number[])[],
    fetches: Record<string, null>,
  ): Promise<Record<string, Tensor>> {
    const { runtime } = this.#sessions
    const length = tokenIds[0]?.length ?? 0
    const ids = BigInt64Array.from(tokenIds.flat(), BigInt)
    const own: Readonly<Record<string, () => Tensor>> = {
      input_ids: () => runtime.tensor('int64', ids, [this.#rows, length]),
      use_cache_branch: () => runtime.tensor('bool', Uint8Array.of(this.#length > 0 ? 1 : 0), [1]),
      cache_position: () =>
        runtime.tensor(
          'int64',
          BigInt64Array.from({ length }, (_, i) => BigInt(this.#length + i)),
          [length],
        ),
    }
    const feeds: Record<string, Tensor> = {}
    const made: Tensor[] = []
    for (const { name } of session.inputs) {
      const make = own[name]
      const tensor = make?.() ?? (name === STATES ? this.#states : this.#past.get(name))
      if (tensor === undefined) throw new Error(`${session.file}: nothing for the input ${name}`)
      if (make !== undefined) made.push(tensor)
      feeds[name] = tensor
    }
    try {
      return await session.run(feeds, fetches)
    } finally {
      for (const tensor of made) tensor.dispose()
    }
  }

  #takeOver({ logits, ...presents }: Record<string, Tensor>): void {
    this.#logits = logits?.data.slice() ?? this.#logits
    logits?.dispose()
    for (const [name, tensor] of Object.entries(presents)) {
      const input = name.replace(/^present/, PAST)
      this.#past.get(input)?.dispose()
      this.#past.set(input, tensor)
    }
  }
}

/** Keys and values of the encoder are constant: later runs return them empty or not at all. */
function wanted(session: ModelSession, isLater: boolean): Record<string, null> {
  const names = session.outputs
    .map(({ name }) => name)
    .filter((name) => name === 'logits' || name.startsWith('present'))
    .filter((name) => !(isLater && name.includes('.encoder.')))
  return Object.fromEntries(names.map((name) => [name, null]))
}
