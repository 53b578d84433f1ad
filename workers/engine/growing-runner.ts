import { defined } from '#shared/json.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'

import {
  type CachedRow,
  disposeCache,
  emptyCache,
  type GrowingCache,
  type GrowingMemory,
} from './growing-cache.ts'
import {
  arrangeAdapters,
  type BatchStep,
  type ChunkStep,
  chunkTokens,
  layPrompts,
  logitsToKeepTensor,
  type ModelRunner,
  nextInput,
  type RunnerOptions,
  readLogits,
  type StepLogits,
  wantsAllLogits,
} from './model-runner.ts'
import type { Step } from './scheduler.ts'
import type { Sequence, SlotTable } from './slots.ts'
import { disposeStates, StateCache } from './state-cache.ts'
import { StepInputs, type StepTokens } from './step-inputs.ts'

/**
 * Slots whose sequences decode together. An undefined member has left; it is still computed, but
 * not read.
 */
interface Group {
  readonly members: (number | undefined)[]
  /** Padding before each member's first position. */
  readonly offsets: readonly number[]
  cache: GrowingCache
}

/**
 * Runs decoders that return their cache with the new positions appended. The returned values are
 * the next inputs without passing through JavaScript. Prompts run alone; decoding sequences run as
 * one left-padded group, which is packed again only when one joins or half of it has left.
 */
export class GrowingRunner implements ModelRunner {
  readonly #options: RunnerOptions
  readonly #inputs: StepInputs
  readonly #memory: GrowingMemory
  readonly #states: StateCache
  /** Caches of slots that belong to no group. */
  readonly #single = new Map<number, GrowingCache>()
  #group: Group | undefined
  #logits: Tensor | undefined
  readonly #canGroup: boolean

  constructor(options: RunnerOptions, memory: GrowingMemory) {
    const { graph } = options
    this.#options = options
    this.#inputs = new StepInputs(options.runtime, graph, options.embedder)
    this.#memory = memory
    this.#states = new StateCache(options.runtime, graph.states, options.slots)
    this.#canGroup = graph.hasPositionIds && graph.hasAttentionMask && !graph.isRowCoupled
  }

  async copyPrefix(source: number, target: number, length: number): Promise<void> {
    const row = this.#find(source)
    if (row === undefined) throw new Error(`slot ${source} has no cache`)
    const copy = await this.#memory.pack([row], [length])
    this.#drop(target)
    this.#single.set(target, copy)
  }

  async run(step: Step, slots: SlotTable): Promise<StepLogits> {
    if (step.kind === 'batchPrefill') return await this.#runBatch(step)
    if (step.kind !== 'decode') return await this.#runChunk(step)
    const { sequences } = step
    if (sequences.length > 1 && this.#canGroup) return await this.#runGroup(sequences, slots)
    const rows: Float32Array[] = []
    for (const sequence of sequences) {
      const logits = await this.#runChunk({ kind: 'prefill', sequence, count: 1 })
      const row = logits.row(0)
      rows.push(sequences.length > 1 ? row.slice() : row)
    }
    return { numRows: rows.length, row: (index) => defined(rows[index]) }
  }

  close(): void {
    for (const cache of this.#single.values()) disposeCache(cache)
    this.#single.clear()
    if (this.#group) disposeCache(this.#group.cache)
    this.#group = undefined
    this.#logits?.dispose()
  }

  async #runChunk(step: ChunkStep): Promise<StepLogits> {
    const { graph } = this.#options
    const { sequence } = step
    const { slot, numComputed } = sequence
    const tokens = chunkTokens(step)
    const cache = await this.#take(slot, numComputed)
    const isTrimmed = !wantsAllLogits(step) && graph.logitsToKeep !== undefined
    const numRows = isTrimmed || !graph.givesAllLogits ? 1 : tokens.length
    const laid = {
      rows: [{ first: numComputed, sequence }],
      ids: BigInt64Array.from(tokens, BigInt),
      mask: new BigInt64Array(numComputed + tokens.length).fill(1n),
    }
    this.#single.set(slot, await this.#run(laid, cache, numRows))
    return this.#readLogits(numRows)
  }

  /** Runs prompts of the same length together. They stay a group if there are no others. */
  async #runBatch(step: BatchStep): Promise<StepLogits> {
    const { runtime, graph } = this.#options
    const { sequences, length } = step
    const rows = sequences.length
    const cache = await this.#run(layPrompts(step), emptyCache(runtime, graph.cache, rows), 1)
    const members = sequences.map(({ slot }) => slot)
    for (const slot of members) this.#drop(slot)
    if (this.#group === undefined) {
      this.#group = { members, offsets: members.map(() => 0), cache }
    } else {
      try {
        for (const [row, slot] of members.entries()) {
          this.#single.set(slot, await this.#memory.pack([{ cache, row, offset: 0 }], [length]))
        }
      } finally {
        disposeCache(cache)
      }
    }
    const kept = graph.givesAllLogits && graph.logitsToKeep === undefined ? length : 1
    const logits = this.#readLogits(rows * kept)
    return { numRows: rows, row: (index) => logits.row((index + 1) * kept - 1) }
  }

  async #runGroup(sequences: readonly Sequence[], slots: SlotTable): Promise<StepLogits> {
    const { contextLength } = this.#options
    const group = await this.#gather(sequences, slots)
    const { length } = group.cache
    const rows = group.members.length
    const ids = new BigInt64Array(rows)
    const mask = new BigInt64Array(rows * (length + 1)).fill(1n)
    const stepRows = group.offsets.map((offset, row) => {
      mask.fill(0n, row * (length + 1), row * (length + 1) + offset)
      const slot = group.members[row]
      const first = Math.min(length - offset, contextLength - 1)
      return { first, sequence: sequences.find((sequence) => sequence.slot === slot) }
    })
    const rowOf = sequences.map((sequence) => group.members.indexOf(sequence.slot))
    for (const [index, sequence] of sequences.entries()) {
      ids[defined(rowOf[index])] = BigInt(nextInput(sequence))
    }
    this.#group = undefined // the run consumes the cache, even if it fails
    group.cache = await this.#run({ rows: stepRows, ids, mask }, group.cache, 1)
    this.#group = group
    const logits = this.#readLogits(rows)
    return { numRows: sequences.length, row: (index) => logits.row(defined(rowOf[index])) }
  }

  /** Runs the model on a cache, which is consumed, and returns the grown one. */
  async #run(tokens: StepTokens, cache: GrowingCache, numLogits: number): Promise<GrowingCache> {
    const { runtime, graph } = this.#options
    const fetches: Record<string, Tensor | null> = { logits: null }
    this.#logits?.dispose()
    this.#logits = undefined
    let inputs: Record<string, Tensor> = {}
    let grown: readonly (Tensor | null)[] = []
    const states = this.#states.lay(tokens.rows)
    Object.assign(fetches, states.outputs)
    try {
      const adapted = arrangeAdapters(this.#options, tokens)
      const { session } = adapted ?? this.#options
      inputs = {
        ...(await this.#inputs.lay(tokens)),
        ...adapted?.indices,
        ...this.#branchTensor(cache.length > 0),
        ...logitsToKeepTensor(runtime, graph, numLogits),
      }
      const feeds = { ...inputs, ...states.inputs, ...adapted?.weights }
      const columns = tokens.ids.length / tokens.rows.length
      grown = this.#memory.allocate(cache.rows, cache.length + columns)
      for (const [index, { past, present }] of graph.cache.entries()) {
        feeds[past] = defined(cache.tensors[index])
        fetches[present] = grown[index] ?? null
      }
      const results = await session.run(feeds, fetches)
      this.#logits = results.logits
      this.#states.keep(tokens.rows, states)
      const tensors = graph.cache.map(({ present }) => defined(results[present]))
      return {
        tensors,
        rows: cache.rows,
        length: defined(defined(tensors[0]).dims[2]),
        isPacked: false,
      }
    } catch (error) {
      for (const tensor of grown) tensor?.dispose()
      throw error
    } finally {
      disposeCache(cache)
      disposeStates(states)
      for (const tensor of Object.values(inputs)) tensor.dispose()
    }
  }

  /** Selects the branch of an old merged export. */
  #branchTensor(hasPast: boolean): Record<string, Tensor> {
    const { runtime, graph } = this.#options
    if (!graph.hasCacheBranch) return {}
    return { use_cache_branch: runtime.tensor('bool', Uint8Array.of(hasPast ? 1 : 0), [1]) }
  }

  #readLogits(numRows: number): StepLogits {
    const data = defined(this.#logits).data as Float32Array | Float16Array
    return readLogits(data, this.#options.graph.vocabSize, numRows)
  }

  /** The slot's first `length` positions as a separate cache, taken from where they were. */
  async #take(slot: number, length: number): Promise<GrowingCache> {
    const single = this.#single.get(slot)
    if (length > 0 && single?.length === length) {
      this.#single.delete(slot)
      return single
    }
    const row = length > 0 ? this.#find(slot) : undefined
    const { runtime, graph } = this.#options
    const cache = row
      ? await this.#memory.pack([row], [length])
      : emptyCache(runtime, graph.cache, 1)
    this.#drop(slot)
    return cache
  }

  /** Makes the sequences one group, reusing the current one while they fit into it. */
  async #gather(sequences: readonly Sequence[], slots: SlotTable): Promise<Group> {
    const present = this.#group
    const isCovered = sequences.every(({ slot }) => present?.members.includes(slot))
    if (present && isCovered && sequences.length * 2 > present.members.length) return present
    const members = sequences.map(({ slot }) => slot)
    const lengths = sequences.map(({ numComputed }) => numComputed)
    const sources = members.map((slot) => defined(this.#find(slot)))
    const cache = await this.#memory.pack(sources, lengths)
    for (const slot of present?.members ?? []) {
      if (slot !== undefined && !members.includes(slot)) await this.#extract(slot, slots)
    }
    for (const slot of members) this.#drop(slot)
    if (present) disposeCache(present.cache)
    this.#group = { members, offsets: lengths.map((length) => cache.length - length), cache }
    return this.#group
  }

  /** Keeps the content of a finished sequence from a group that is about to be dropped. */
  async #extract(slot: number, slots: SlotTable): Promise<void> {
    const { length } = slots.at(slot)
    const row = this.#find(slot)
    if (length > 0 && row) {
      this.#single.set(slot, await this.#memory.pack([row], [length]))
    }
  }

  #find(slot: number): CachedRow | undefined {
    const row = this.#group?.members.indexOf(slot) ?? -1
    if (row >= 0) {
      return {
        cache: defined(this.#group).cache,
        row,
        offset: defined(defined(this.#group).offsets[row]),
      }
    }
    const cache = this.#single.get(slot)
    return cache && { cache, row: 0, offset: 0 }
  }

  #drop(slot: number): void {
    const cache = this.#single.get(slot)
    if (cache) disposeCache(cache)
    this.#single.delete(slot)
    const row = this.#group?.members.indexOf(slot) ?? -1
    if (row < 0) return
    defined(this.#group).members[row] = undefined
    if (defined(this.#group).members.some((member) => member !== undefined)) return
    disposeCache(defined(this.#group).cache)
    this.#group = undefined
  }
}
