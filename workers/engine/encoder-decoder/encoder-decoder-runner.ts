import assert from 'node:assert/strict'

import { defined } from '#shared/json.ts'
import { type ModelRunner, nextInput, type StepLogits } from '#workers/engine/model-runner.ts'
import type { Step } from '#workers/engine/scheduler.ts'
import type { Sequence } from '#workers/engine/slots.ts'

import { DecoderRun, type DecoderSessions } from './decoder-run.ts'
import type { SourceEncoder } from './source-encoder.ts'

/** Sequences at the same position of their answers. Ended ones are still computed, but not read. */
interface Group {
  readonly run: DecoderRun
  readonly members: readonly Sequence[]
}

/**
 * Runs encoder-decoders. The prompt of a sequence is the encoder's: its prefill encodes it and
 * computes the decoder's start tokens, and a decode step computes one token of the answer. Decoders
 * count positions by the length of their cache, so rows of one run are at the same position:
 * prompts that start together stay together, and a decode step is one run per group.
 */
export class EncoderDecoderRunner implements ModelRunner {
  readonly #encoder: SourceEncoder
  readonly #decoder: DecoderSessions
  #groups: Group[] = []

  constructor(encoder: SourceEncoder, decoder: DecoderSessions) {
    this.#encoder = encoder
    this.#decoder = decoder
  }

  copyPrefix(): never {
    throw new Error('the states of an encoder depend on the whole prompt')
  }

  async run(step: Step): Promise<StepLogits> {
    this.dropEnded()
    if (step.kind === 'decode') return await this.#decode(step.sequences)
    if (step.kind === 'batchPrefill') return await this.#beginAll(step.sequences)
    const { sequence } = step
    if (sequence.numComputed > 0) return await this.#decode([sequence])
    return await this.#begin(sequence)
  }

  dropEnded(): void {
    const isGoing = ({ members }: Group): boolean => members.some(({ state }) => state !== 'done')
    for (const group of this.#groups) if (!isGoing(group)) group.run.dispose()
    this.#groups = this.#groups.filter(isGoing)
  }

  close(): void {
    for (const { run } of this.#groups) run.dispose()
    this.#groups = []
  }

  /**
   * Runs one prompt; row i of the logits follows its token i, starting with the last token of the
   * source.
   */
  async #begin(sequence: Sequence): Promise<StepLogits> {
    const { length, startTokenIds } = sourceOf(sequence)
    const run = await this.#open([sequence])
    const first = length - startTokenIds.length
    return { numRows: sequence.numPrompt, row: (index) => run.logits(0, index - first) }
  }

  /** Prompts with equally many decoder start tokens share a run. */
  async #beginAll(sequences: readonly Sequence[]): Promise<StepLogits> {
    const byLength = Map.groupBy(sequences, (sequence) => decoderPrompt(sequence).length)
    const rows = new Map<Sequence, () => Float32Array>()
    for (const members of byLength.values()) {
      const run = await this.#open(members)
      for (const [row, member] of members.entries()) rows.set(member, () => run.logits(row))
    }
    return logitsOf(sequences, rows)
  }

  async #open(members: readonly Sequence[]): Promise<DecoderRun> {
    const states = await this.#encoder.encode(members.map(encoderPrompt))
    const run = await DecoderRun.begin(this.#decoder, members.map(decoderPrompt), states)
    this.#groups.push({ run, members })
    return run
  }

  async #decode(sequences: readonly Sequence[]): Promise<StepLogits> {
    const rows = new Map<Sequence, () => Float32Array>()
    const wanted = new Set(sequences)
    for (const group of this.#groups) {
      if (!group.members.some((member) => wanted.has(member))) continue
      const { run, members } = this.#gather(group, wanted)
      await run.step(members.map((member) => (wanted.has(member) ? nextInput(member) : 0)))
      for (const [row, member] of members.entries()) rows.set(member, () => run.logits(row))
    }
    return logitsOf(sequences, rows)
  }

  /**
   * The part of a group that a step computes. Sequences that wait keep their position in a separate
   * group; ended ones stay until they are half of the group, because copying costs as much.
   */
  #gather(group: Group, wanted: ReadonlySet<Sequence>): Group {
    const { run, members } = group
    const rowsOf = (matches: (member: Sequence) => boolean): number[] =>
      [...members.keys()].filter((row) => matches(defined(members[row])))
    const pick = (rows: readonly number[]): Sequence[] => rows.map((row) => defined(members[row]))
    const stepping = rowsOf((member) => wanted.has(member))
    const waiting = rowsOf((member) => !wanted.has(member) && member.state !== 'done')
    if (waiting.length === 0 && stepping.length * 2 > members.length) return group
    const others = this.#groups.filter((other) => other !== group)
    if (waiting.length > 0) others.push({ run: run.copy(waiting), members: pick(waiting) })
    run.keep(stepping)
    const kept = { run, members: pick(stepping) }
    this.#groups = [...others, kept]
    return kept
  }
}

function sourceOf({ request: { source } }: Sequence) {
  assert(source !== undefined, 'a sequence of an encoder-decoder needs a source')
  return source
}

function encoderPrompt(sequence: Sequence): readonly number[] {
  const { promptTokenIds } = sequence.request
  const { length } = sourceOf(sequence)
  // The list itself if it is complete, so that candidates of one prompt share it.
  return length === promptTokenIds.length ? promptTokenIds : promptTokenIds.slice(0, length)
}

function decoderPrompt(sequence: Sequence): readonly number[] {
  const { length, startTokenIds } = sourceOf(sequence)
  return [...startTokenIds, ...sequence.request.promptTokenIds.slice(length)]
}

function logitsOf(
  sequences: readonly Sequence[],
  rows: ReadonlyMap<Sequence, () => Float32Array>,
): StepLogits {
  return {
    numRows: sequences.length,
    row: (index) => defined(rows.get(defined(sequences[index])))(),
  }
}
