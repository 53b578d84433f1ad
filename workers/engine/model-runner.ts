import { defined } from '#shared/json.ts'
import type { AdaptedRun, AdapterRuns } from '#workers/adapters/adapter-runs.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'

import type { DecoderGraph } from './decoder-graph.ts'
import type { Step } from './scheduler.ts'
import type { MemoryRelease, Sequence, SlotTable } from './slots.ts'
import type { StepTokens } from './step-inputs.ts'
import type { TokenEmbedder } from './token-embedder.ts'

/** Runs steps on a model and keeps the cache; only runners access a decoder's tensors. */
export interface ModelRunner {
  /** Copies the first `length` positions of one slot to another. */
  copyPrefix(source: number, target: number, length: number): void | Promise<void>
  /** Releases memory of a slot; used only if slots are added under load. */
  releaseMemory?(release: MemoryRelease): void
  /** Runs a step. The logits are valid until the next run. */
  run(step: Step, slots: SlotTable): Promise<StepLogits>
  /** Frees the contents of ended sequences if no later one can use them. */
  dropEnded?(): void
  close(): void
}

/** A step of one sequence. */
export type ChunkStep = Extract<Step, { readonly sequence: Sequence }>

/** A step of whole prompts. */
export type BatchStep = Extract<Step, { readonly kind: 'batchPrefill' }>

/**
 * Logits of a step: of the chunk's positions (prefill, verify) or of the sequences (batchPrefill,
 * decode). A prefill that does not request all of them has only its last row.
 */
export interface StepLogits {
  readonly numRows: number
  row(index: number): Float32Array
}

/** The dependencies of both runners. */
export interface RunnerOptions {
  readonly runtime: Runtime
  readonly session: ModelSession
  readonly adapters: Pick<AdapterRuns, 'arrange'>
  readonly graph: DecoderGraph
  /** For graphs that read embeddings. */
  readonly embedder?: TokenEmbedder
  readonly slots: number
  readonly contextLength: number
  /** See `SchedulerOptions`: the width of the mask selects the set of factors. */
  readonly shortTextMax?: number
  /** The most positions of one sequence in one run. */
  readonly chunkMax: number
}

/** Rows of logits over a tensor's memory, widened to 32 bits where needed. */
export function readLogits(
  data: Float32Array | Float16Array,
  vocabSize: number,
  numRows: number,
): StepLogits {
  return {
    numRows,
    row(index) {
      const row = data.subarray(index * vocabSize, (index + 1) * vocabSize)
      return row instanceof Float32Array ? row : Float32Array.from(row)
    },
  }
}

/** The tokens that a step computes for one sequence. */
export function chunkTokens(step: ChunkStep): readonly number[] {
  const { tokenIds, numComputed } = step.sequence
  if (step.kind === 'verify') return [...tokenIds.slice(numComputed), ...step.draft]
  return tokenIds.slice(numComputed, numComputed + step.count)
}

/**
 * The token that a decode step computes for a sequence: its last, unless it replays earlier ones.
 */
export function nextInput(sequence: Sequence): number {
  return defined(sequence.tokenIds[sequence.numComputed])
}

/** The adapted session of a run, if one of its rows has an adapter. */
export function arrangeAdapters(
  { adapters }: Pick<RunnerOptions, 'adapters'>,
  { rows }: StepTokens,
): AdaptedRun | undefined {
  return adapters.arrange(rows.map(({ sequence }) => sequence?.request.adapter))
}

/** Whether logits of every position of a step are wanted. */
export function wantsAllLogits(step: ChunkStep): boolean {
  return step.kind === 'verify' || step.sequence.wantsPromptLogits
}

/** The input that limits the logits, when the graph has one. */
export function logitsToKeepTensor(
  runtime: Runtime,
  graph: DecoderGraph,
  count: number,
): Record<string, Tensor> {
  const spec = graph.logitsToKeep
  if (spec === undefined) return {}
  const dims = spec.dims.map(() => 1)
  return { [spec.name]: runtime.tensor('int64', BigInt64Array.of(BigInt(count)), dims) }
}

/** Whole prompts as rows of one length, padded on the right. */
export function layPrompts({ sequences, length }: BatchStep): StepTokens {
  const size = sequences.length * length
  const ids = new BigInt64Array(size)
  const mask = new BigInt64Array(size)
  for (const [row, { request }] of sequences.entries()) {
    for (const [index, id] of request.promptTokenIds.entries())
      ids[row * length + index] = BigInt(id)
    mask.fill(1n, row * length, row * length + request.promptTokenIds.length)
  }
  return { rows: sequences.map((sequence) => ({ first: 0, sequence })), ids, mask }
}
