import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'
import type { ElementType, TensorData } from '#workers/tensor/element-type.ts'

import { copyRows, type EncoderStates, joinStates } from './encoder-states.ts'

/** The input with the encoder's output. */
export const STATES = 'encoder_hidden_states'
/** The input that marks padding in it. */
export const STATES_MASK = 'encoder_attention_mask'
const PAST = 'past_key_values'

/** Throws `ModelLoadError` for an input that runs of a decoder do not feed. */
export function checkDecoderInputs({ file, inputs }: ModelSession): void {
  const known = ['input_ids', STATES, STATES_MASK, 'use_cache_branch', 'cache_position']
  const unknown = inputs.find(({ name }) => !known.includes(name) && !name.startsWith(`${PAST}.`))
  if (unknown) throw new ModelLoadError(file, `the input ${unknown.name} is not known`)
}

/**
 * The graphs of a decoder in either layout of the hub: `first` for the first run and `later` for
 * the following ones. Both are the same if one graph has both branches.
 */
export interface DecoderSessions {
  readonly runtime: Runtime
  readonly first: ModelSession
  readonly later: ModelSession
  /** Element type of the encoder states that the decoder takes. */
  readonly stateType: ElementType
}

/**
 * Rows that are decoded together, each with its own encoder states; all are at the same position.
 */
export class DecoderRun {
  readonly #sessions: DecoderSessions
  #rows: number
  #length = 0
  #states: Tensor
  #mask: Tensor
  /** Cache tensors by the name of their input. */
  readonly #past = new Map<string, Tensor>()
  #logits: TensorData = new Float32Array(0)
  #numPositions = 0

  private constructor(
    sessions: DecoderSessions,
    { states, mask }: { readonly states: Tensor; readonly mask: Tensor },
  ) {
    this.#sessions = sessions
    this.#rows = states.dims[0] as number
    this.#states = states
    this.#mask = mask
  }

  /** Computes one prompt for each row of states, all of the same length. */
  static async begin(
    sessions: DecoderSessions,
    prompts: readonly (readonly number[])[],
    states: readonly EncoderStates[],
  ): Promise<DecoderRun> {
    const run = DecoderRun.#open(sessions, states)
    try {
      await run.#advance(sessions.first, prompts)
      return run
    } catch (error) {
      run.dispose()
      throw error
    }
  }

  /** Outputs of a single run over one row, which the caller disposes. */
  static async fetch(
    sessions: DecoderSessions,
    asked: {
      readonly prompt: readonly number[]
      readonly states: EncoderStates
      readonly names: readonly string[]
    },
  ): Promise<Record<string, Tensor>> {
    const run = DecoderRun.#open(sessions, [asked.states])
    try {
      const fetches = Object.fromEntries(asked.names.map((name) => [name, null]))
      return await run.#run(sessions.first, [asked.prompt], fetches)
    } finally {
      run.dispose()
    }
  }

  static #open(sessions: DecoderSessions, states: readonly EncoderStates[]): DecoderRun {
    const { runtime, stateType, first } = sessions
    const run = new DecoderRun(sessions, joinStates(runtime, stateType, states))
    for (const { name, type, dims } of first.inputs) {
      if (!name.startsWith(PAST)) continue
      // The merged graph requires its cache inputs in the first run; they have zero positions
      // there.
      const shape = dims.map((dim, axis) => (axis === 0 ? run.#rows : axis === 2 ? 0 : Number(dim)))
      run.#past.set(name, runtime.zeros(type ?? 'float32', shape))
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
      const picked = copyRows(runtime, tensor, rows)
      tensor.dispose()
      return picked
    }
    this.#states = pick(this.#states)
    this.#mask = pick(this.#mask)
    for (const [name, tensor] of this.#past) this.#past.set(name, pick(tensor))
    this.#rows = rows.length
  }

  /** A copy of some rows as a separate run, before its next step. */
  copy(rows: readonly number[]): DecoderRun {
    const { runtime } = this.#sessions
    const copied = new DecoderRun(this.#sessions, {
      states: copyRows(runtime, this.#states, rows),
      mask: copyRows(runtime, this.#mask, rows),
    })
    for (const [name, tensor] of this.#past) copied.#past.set(name, copyRows(runtime, tensor, rows))
    copied.#length = this.#length
    return copied
  }

  dispose(): void {
    this.#states.dispose()
    this.#mask.dispose()
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
    const kept: Readonly<Record<string, Tensor>> = {
      [STATES]: this.#states,
      [STATES_MASK]: this.#mask,
    }
    const feeds: Record<string, Tensor> = {}
    const made: Tensor[] = []
    for (const { name } of session.inputs) {
      const make = own[name]
      const tensor = make?.() ?? kept[name] ?? this.#past.get(name)
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
