import { defined } from '#shared/json.ts'
import type { AdaptedRun } from '#workers/adapters/adapter-runs.ts'
import type { Binding, ModelSession } from '#workers/runtime/session.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'
import { allocateElements } from '#workers/tensor/element-type.ts'

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
import type { SlotCache } from './slot-cache.ts'
import type { MemoryRelease, Sequence, SlotTable } from './slots.ts'
import { disposeStates, StateCache } from './state-cache.ts'
import { StepInputs, type StepTokens } from './step-inputs.ts'

type CacheData = Float32Array | Float16Array

/** Mask widths are rounded up, so that the mask of a growing sequence is rarely rebuilt. */
const MASK_WIDTH_STEP = 64

/** Ranges of slots that stay bound; more are rare, and binding one again costs less than a step. */
const RANGES_MAX = 64

/** A range of slots whose cache is bound to the model as past and as present: the same memory. */
interface SlotRange {
  readonly binding: Binding
  readonly tensors: readonly Tensor[]
  /** The low-rank matrices that are bound. */
  weights?: AdaptedRun['weights']
}

/**
 * Runs decoders with GroupQueryAttention on one buffer per layer, [slots, heads, length, size],
 * which is past and present at once. A prompt runs on a view of its slot. A decode step runs on the
 * range of slots that spans the decoding ones; idle slots inside it compute an unused token,
 * written after their content, and each step moves one of them out.
 */
export class InPlaceRunner implements ModelRunner {
  readonly #options: RunnerOptions
  readonly #inputs: StepInputs
  readonly #cache: SlotCache
  readonly #states: StateCache
  readonly #ranges = new Map<ModelSession, Map<string, SlotRange>>()
  readonly #logits: CacheData
  readonly #mask: BigInt64Array
  #maskLayout = ''
  #maskLengths: number[] = []

  constructor(options: RunnerOptions, cache: SlotCache) {
    const { graph, slots, contextLength, chunkMax } = options
    this.#options = options
    this.#inputs = new StepInputs(options.runtime, graph, options.embedder)
    this.#cache = cache
    this.#states = new StateCache(options.runtime, graph.states, slots)
    const rows = Math.max(slots, chunkMax)
    this.#logits = allocateElements(graph.logitsType, rows * graph.vocabSize) as CacheData
    this.#mask = new BigInt64Array(slots * contextLength)
  }

  copyPrefix(source: number, target: number, length: number): void | Promise<void> {
    return this.#cache.copy({ slot: source, length }, target)
  }

  releaseMemory({ slot, from }: MemoryRelease): void {
    this.#cache.release({ slot, from })
    if (from === 0) this.#states.release(slot)
  }

  async run(step: Step, slots: SlotTable): Promise<StepLogits> {
    if (step.kind === 'batchPrefill') return await this.#runBatch(step)
    if (step.kind !== 'decode') return await this.#runChunk(step)
    return this.#options.graph.isRowCoupled
      ? await this.#decodeByRow(step.sequences)
      : await this.#decode(step.sequences, slots)
  }

  close(): void {
    for (const ranges of this.#ranges.values()) {
      for (const range of ranges.values()) releaseRange(range)
    }
    this.#ranges.clear()
    this.#cache.close()
  }

  async #runChunk(step: ChunkStep): Promise<StepLogits> {
    const { graph } = this.#options
    const { sequence } = step
    const { numComputed, slot } = sequence
    const ids = BigInt64Array.from(chunkTokens(step), BigInt)
    const length = numComputed + ids.length
    const mask = new BigInt64Array(Math.max(length, this.#widthMin(sequence)))
    if (graph.areStatesMasked) mask.fill(1n, mask.length - length)
    else mask.fill(1n, 0, length)
    const isTrimmed = !wantsAllLogits(step) && graph.logitsToKeep !== undefined
    const numRows = isTrimmed || !graph.givesAllLogits ? 1 : ids.length
    const tokens = { rows: [{ first: numComputed, sequence }], ids, mask }
    const adapted = arrangeAdapters(this.#options, tokens)
    await this.#run(this.#range(slot, 1, adapted), tokens, { numRows, adapted })
    return readLogits(this.#logits, graph.vocabSize, numRows)
  }

  /** Runs prompts together in a separate cache, from which they are copied to their slots. */
  async #runBatch(step: BatchStep): Promise<StepLogits> {
    const { graph } = this.#options
    const { sequences, length } = step
    const rows = sequences.length
    const shortest = Math.min(...sequences.map(({ numPrompt }) => numPrompt))
    const numLast = graph.logitsToKeep === undefined ? length : length - shortest + 1
    const kept = graph.givesAllLogits ? numLast : 1
    const tokens = layPrompts(step)
    const adapted = arrangeAdapters(this.#options, tokens)
    const { session } = adapted ?? this.#options
    const range = { binding: session.bind(), tensors: this.#cache.makeBatch(rows, length) }
    try {
      this.#bindCache(range)
      await this.#run(range, tokens, { numRows: rows * kept, adapted })
      for (const [row, { slot, numPrompt }] of sequences.entries()) {
        await this.#cache.takeRow(range.tensors, row, { slot, length: numPrompt })
      }
    } finally {
      releaseRange(range)
    }
    const logits = readLogits(this.#logits, graph.vocabSize, rows * kept)
    const lastOf = (row: number): number => defined(sequences[row]).numPrompt - 1 - (length - kept)
    return { numRows: rows, row: (index) => logits.row(index * kept + lastOf(index)) }
  }

  /** Runs each sequence alone if rows of a run would change each other's results. */
  async #decodeByRow(sequences: readonly Sequence[]): Promise<StepLogits> {
    const rows: Float32Array[] = []
    for (const sequence of sequences) {
      const logits = await this.#runChunk({ kind: 'prefill', sequence, count: 1 })
      rows.push(logits.row(0).slice())
    }
    return { numRows: rows.length, row: (index) => defined(rows[index]) }
  }

  async #decode(sequences: readonly Sequence[], slots: SlotTable): Promise<StepLogits> {
    const { graph, contextLength } = this.#options
    await this.#compact(sequences, slots)
    const owned = sequences.map(({ slot }) => slot)
    const first = Math.min(...owned)
    const rows = Math.max(...owned) - first + 1
    const [{ isLong } = { isLong: false }] = sequences
    // The unused row of a long text would widen the mask to that of long texts.
    if (!isLong && this.#holdsLong(slots, first, rows)) return await this.#decodeByRow(sequences)
    const ids = new BigInt64Array(rows)
    const lengths = Array.from({ length: rows }, (_, row) => {
      const { length } = slots.at(first + row)
      const held = Math.min(length, contextLength - 1)
      slots.truncate(first + row, held)
      return held + 1
    })
    for (const sequence of sequences) ids[sequence.slot - first] = BigInt(nextInput(sequence))
    const mask = this.#layMask(lengths, defined(sequences[0]))
    const stepRows = lengths.map((length, row) => {
      return { first: length - 1, sequence: sequences.find(({ slot }) => slot === first + row) }
    })
    const tokens = { rows: stepRows, ids, mask }
    const adapted = arrangeAdapters(this.#options, tokens)
    await this.#run(this.#range(first, rows, adapted), tokens, { numRows: rows, adapted })
    const logits = readLogits(this.#logits, graph.vocabSize, rows)
    return { numRows: sequences.length, row: (index) => logits.row(defined(owned[index]) - first) }
  }

  async #run(
    range: SlotRange,
    tokens: StepTokens,
    { numRows, adapted }: { readonly numRows: number; readonly adapted: AdaptedRun | undefined },
  ): Promise<void> {
    const { runtime, graph } = this.#options
    const { binding } = range
    const rows = tokens.rows.length
    const inputs: Record<string, Tensor> = {
      ...(await this.#inputs.lay(tokens)),
      ...logitsToKeepTensor(runtime, graph, numRows / rows),
      ...adapted?.indices,
    }
    const states = this.#states.lay(tokens.rows)
    const used = this.#logits.subarray(0, numRows * graph.vocabSize)
    const logits = runtime.tensor(graph.logitsType, used, [rows, numRows / rows, graph.vocabSize])
    try {
      bindWeights(range, adapted)
      for (const [name, tensor] of Object.entries({ ...inputs, ...states.inputs })) {
        binding.setInput(name, tensor)
      }
      for (const [name, tensor] of Object.entries(states.outputs)) binding.setOutput(name, tensor)
      binding.setOutput('logits', logits)
      await binding.run()
      this.#states.keep(tokens.rows, states)
    } finally {
      logits.dispose()
      disposeStates(states)
      for (const tensor of Object.values(inputs)) tensor.dispose()
    }
  }

  /**
   * Moves the outermost decoding slot into a gap, one per step, because idle rows cost time in
   * every step.
   */
  async #compact(sequences: readonly Sequence[], slots: SlotTable): Promise<void> {
    const owned = new Set(sequences.map(({ slot }) => slot))
    const last = Math.max(...owned)
    const first = Math.min(...owned)
    for (let gap = first; gap < last; gap += 1) {
      if (owned.has(gap)) continue
      await this.#cache.swap(
        { slot: gap, length: slots.at(gap).length },
        { slot: last, length: slots.at(last).length },
      )
      this.#states.swap(gap, last)
      slots.swap(gap, last)
      for (const release of slots.takeReleases()) this.releaseMemory(release)
      return
    }
  }

  /**
   * A right-padded mask, of which only changes since the last step are written. Attention only
   * reads a row's sum; if states read it too, it is left-padded.
   */
  #layMask(lengths: readonly number[], sequence: Sequence): BigInt64Array {
    const { graph, contextLength, shortTextMax = contextLength } = this.#options
    const longest = Math.max(...lengths, this.#widthMin(sequence))
    const rounded = Math.ceil(longest / MASK_WIDTH_STEP) * MASK_WIDTH_STEP
    const width = Math.min(rounded, sequence.isLong ? contextLength : shortTextMax)
    const mask = this.#mask.subarray(0, lengths.length * width)
    if (graph.areStatesMasked) {
      mask.fill(0n)
      for (const [row, length] of lengths.entries()) {
        mask.fill(1n, (row + 1) * width - length, (row + 1) * width)
      }
      return mask
    }
    const layout = `${lengths.length}x${width}`
    if (layout !== this.#maskLayout) {
      mask.fill(0n)
      this.#maskLayout = layout
      this.#maskLengths = lengths.map(() => 0)
    }
    for (const [row, length] of lengths.entries()) {
      const before = defined(this.#maskLengths[row])
      if (length > before) mask.fill(1n, row * width + before, row * width + length)
      else mask.fill(0n, row * width + length, row * width + before)
      this.#maskLengths[row] = length
    }
    return mask
  }

  /** The mask of a long text is wider than any of a short one, even at its first positions. */
  #widthMin({ isLong }: Sequence): number {
    return isLong ? (this.#options.shortTextMax ?? 0) + 1 : 0
  }

  #holdsLong(slots: SlotTable, first: number, rows: number): boolean {
    const { shortTextMax } = this.#options
    if (shortTextMax === undefined) return false
    return Array.from({ length: rows }, (_, row) => slots.at(first + row).length).some(
      (length) => length + 1 > shortTextMax,
    )
  }

  #range(first: number, rows: number, adapted: AdaptedRun | undefined): SlotRange {
    const { session } = adapted ?? this.#options
    const ranges = this.#ranges.get(session) ?? new Map<string, SlotRange>()
    this.#ranges.set(session, ranges)
    const key = `${first}+${rows}`
    const known = ranges.get(key)
    if (known) return known
    const range = { binding: session.bind(), tensors: this.#cache.view(first, rows) }
    this.#bindCache(range)
    const [oldest] = ranges
    if (ranges.size >= RANGES_MAX && oldest) {
      releaseRange(oldest[1])
      ranges.delete(oldest[0])
    }
    ranges.set(key, range)
    return range
  }

  #bindCache({ binding, tensors }: SlotRange): void {
    for (const [index, { past, present }] of this.#options.graph.cache.entries()) {
      binding.setInput(past, defined(tensors[index]))
      binding.setOutput(present, defined(tensors[index]))
    }
  }
}

/** Binds the matrices of the adapters, unless they are those of the range's last run. */
function bindWeights(range: SlotRange, adapted: AdaptedRun | undefined): void {
  if (adapted === undefined || range.weights === adapted.weights) return
  for (const [name, tensor] of Object.entries(adapted.weights)) range.binding.setInput(name, tensor)
  range.weights = adapted.weights
}

function releaseRange({ binding, tensors }: SlotRange): void {
  binding.release()
  for (const tensor of tensors) tensor.dispose()
}
