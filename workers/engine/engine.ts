import { setImmediate } from 'node:timers/promises'

import { CancelledError, failure } from '#shared/errors.ts'

import type { ModelRunner, StepLogits } from './model-runner.ts'
import { Scheduler, type SchedulerOptions, type Step } from './scheduler.ts'
import { Sequence } from './slots.ts'
import type { EngineStats, SampledToken, SequenceEnd, SequenceRequest } from './types.ts'

/** How long rows are sampled before the event loop runs. */
const SAMPLING_TURN_MS = 10

/** Settings of an engine beyond its scheduler's. */
interface EngineOptions extends SchedulerOptions {
  /** Sequences that may wait for a slot; further ones are refused. */
  readonly waitingMax: number
}

/**
 * Runs steps in a loop: `scheduler.next()` → `runner.run(step)` → sample → `scheduler.settle…`. One
 * step is in flight at a time; sequences join and leave between steps.
 */
export class Engine {
  readonly #scheduler: Scheduler
  readonly #runner: ModelRunner
  readonly #options: EngineOptions
  readonly #stepListeners: (() => void)[] = []
  /** Copies and releases of the cache that admitted sequences wait for, in order. */
  readonly #cacheTasks: (() => void | Promise<void>)[] = []
  #turning: Promise<void> | undefined
  #isClosed = false
  #cachedTokens = 0
  #steps = 0
  #tokens = 0
  #promptTokens = 0

  constructor(runner: ModelRunner, options: EngineOptions) {
    this.#runner = runner
    this.#options = options
    this.#scheduler = new Scheduler(options)
  }

  /** Continues a text; see `TextEngine`. */
  run(request: SequenceRequest, options: { readonly signal: AbortSignal }): Promise<SequenceEnd> {
    const { signal } = options
    return new Promise((resolve, reject) => {
      if (this.#isClosed || signal.aborted) throw new CancelledError()
      this.#checkLimits(request)
      const onAbort = (): void => this.#cancel(sequence)
      const settled = <Value>(settle: (value: Value) => void): ((value: Value) => void) => {
        return (value) => {
          signal.removeEventListener('abort', onAbort)
          settle(value)
        }
      }
      const sequence = new Sequence(request, settled(resolve), settled(reject))
      const reason = findEnd(sequence, this.#options.contextLength)
      if (reason !== undefined && !sequence.wantsPromptLogits) return sequence.finish(reason)
      signal.addEventListener('abort', onAbort, { once: true })
      this.#scheduler.add(sequence)
      this.#turning ??= this.#turn()
    })
  }

  onStep(listener: () => void): void {
    this.#stepListeners.push(listener)
  }

  stats(): EngineStats {
    return {
      slots: this.#scheduler.slots.countFitting(this.#scheduler.sequences),
      active: this.#scheduler.numRunning,
      waiting: this.#scheduler.numWaiting,
      cachedTokens: this.#cachedTokens,
      steps: this.#steps,
      tokens: this.#tokens,
      promptTokens: this.#promptTokens,
    }
  }

  /** Cancels every sequence and waits for the step in flight. */
  async close(): Promise<void> {
    this.#isClosed = true
    for (const sequence of this.#scheduler.sequences) this.#cancel(sequence)
    while (this.#turning !== undefined) await this.#turning
    this.#runner.close()
  }

  #checkLimits(request: SequenceRequest): void {
    const { contextLength, waitingMax } = this.#options
    const numTokens = request.promptTokenIds.length + request.generatedTokenIds.length
    if (request.promptTokenIds.length === 0) {
      throw failure.invalidRequest('the prompt must have at least one token', { param: 'prompt' })
    }
    if (numTokens > contextLength) {
      throw failure.invalidRequest(
        `the model's context is ${contextLength} tokens, but the prompt has ${numTokens}`,
        { code: 'context_length_exceeded', param: 'prompt' },
      )
    }
    if (this.#scheduler.numWaiting >= waitingMax) {
      throw failure.overloaded('too many texts are waiting for the model')
    }
  }

  async #turn(): Promise<void> {
    // Lets the caller's code run first, so that sequences that start together share their first
    // step.
    await Promise.resolve()
    try {
      let hasMore = true
      while (hasMore) hasMore = await this.#moveOn()
    } catch (error) {
      this.#failAll(this.#scheduler.sequences, error)
    } finally {
      // A sequence that arrived after the last check must not wait for the next one.
      this.#turning = this.#scheduler.hasWork ? this.#turn() : undefined
    }
  }

  /** Runs one step; false when no sequence is left. */
  async #moveOn(): Promise<boolean> {
    this.#scheduler.sweep()
    this.#admitAll()
    this.#scheduler.sweep() // sequences may have ended while they were admitted
    const step = this.#scheduler.next()
    if (step === undefined) {
      if (!this.#scheduler.hasWork) {
        this.#runner.dropEnded?.()
        return false
      }
      throw new Error('sequences wait, but none can run')
    }
    // A failed copy ends every sequence, because it is unknown which caches are complete.
    for (const task of this.#cacheTasks.splice(0)) await task()
    await this.#takeStep(step)
    this.#steps += 1
    for (const listener of this.#stepListeners) listener()
    return true
  }

  #admitAll(): void {
    for (;;) {
      const admission = this.#scheduler.canAdmit()
      if (admission === undefined) return
      const { sequence, placement } = admission
      const { slot, source, prefixLength } = placement
      if (prefixLength > 0 && source !== slot) {
        this.#cacheTasks.push(() => this.#runner.copyPrefix(source, slot, prefixLength))
      }
      this.#scheduler.admit(sequence, placement)
      for (const release of this.#scheduler.slots.takeReleases()) {
        this.#cacheTasks.push(() => this.#runner.releaseMemory?.(release))
      }
      this.#cachedTokens += prefixLength
      guard(sequence, () => sequence.request.onAdmitted?.({ cachedTokens: prefixLength }))
    }
  }

  async #takeStep(step: Step): Promise<void> {
    try {
      const startedAtMs = performance.now()
      const logits = await this.#runner.run(step, this.#scheduler.slots)
      const durationMs = performance.now() - startedAtMs
      if (step.kind === 'decode') this.#scheduler.noteDecode(durationMs)
      if (step.kind === 'prefill') this.#scheduler.notePrefill(step.count, durationMs)
      if (step.kind === 'batchPrefill') {
        this.#scheduler.notePrefill(step.sequences.length * step.length, durationMs)
      }
      const sampled = this.#sample(step, logits)
      // Sequences that have ended are settled in the same turn, unless sampling took long.
      const numComputed = typeof sampled === 'number' ? sampled : await sampled
      this.#scheduler.settle(step, numComputed)
      this.#scheduler.sweep()
    } catch (error) {
      this.#failAll('sequences' in step ? step.sequences : [step.sequence], error)
    }
  }

  /**
   * Chooses tokens from a step's logits; returns how many positions of each sequence are now valid.
   */
  #sample(step: Step, logits: StepLogits): number | Promise<number> {
    let rest: Promise<void> | undefined
    switch (step.kind) {
      case 'prefill':
        return this.#samplePrefill(step.sequence, step.count, logits)
      case 'batchPrefill':
        for (const sequence of step.sequences) this.#promptTokens += sequence.numPrompt
        // The next token may be known from an earlier run on another worker.
        rest = this.#sampleRows(step.sequences, logits, ({ numGenerated }) => numGenerated === 0)
        return rest?.then(() => 0) ?? 0
      case 'decode':
        for (const { numComputed, numPrompt } of step.sequences) {
          if (numComputed < numPrompt) this.#promptTokens += 1
        }
        // The next token is known: from the prompt, or from an earlier run on another worker.
        rest = this.#sampleRows(step.sequences, logits, ({ numMissing }) => numMissing === 1)
        return rest?.then(() => 1) ?? 1
      case 'verify':
        return this.#sampleDraft(step.sequence, step.draft, logits)
    }
  }

  /**
   * Samples a row for each sequence that needs a token. The masks of grammars may take long: the
   * result may be a promise of the remaining rows.
   */
  #sampleRows(
    sequences: readonly Sequence[],
    logits: StepLogits,
    needsToken: (sequence: Sequence) => boolean,
  ): Promise<void> | undefined {
    return eachRow({ start: 0, end: sequences.length }, (row) => {
      const sequence = sequences[row]
      if (sequence === undefined || !needsToken(sequence)) return
      guard(sequence, () => this.#sampleToken(sequence, logits.row(row)))
    })
  }

  #samplePrefill(sequence: Sequence, count: number, logits: StepLogits): Promise<number> | number {
    const { numComputed, numPrompt, numMissing } = sequence
    this.#promptTokens += count
    const sampleLast = (): number => {
      if (numMissing === count) {
        guard(sequence, () => this.#sampleToken(sequence, logits.row(logits.numRows - 1)))
      }
      return count
    }
    const { onPromptLogits, promptLogitsFrom = 0, generatedTokenIds } = sequence.request
    // A text that is computed again has already passed on its prompt logits.
    const isRepeated = sequence.numGenerated > generatedTokenIds.length
    if (isRepeated || onPromptLogits === undefined) return sampleLast()
    const rows = {
      start: Math.max(promptLogitsFrom - numComputed, 0),
      end: Math.min(count, numPrompt - numComputed),
    }
    const rest = eachRow(rows, (row) =>
      guard(sequence, () => onPromptLogits(numComputed + row, logits.row(row))),
    )
    return rest?.then(sampleLast) ?? sampleLast()
  }

  /**
   * Row i of the logits follows the draft's first i tokens. While the sampler chooses the drafted
   * token, the next row is valid; its first other choice is valid as well and ends the step.
   */
  #sampleDraft(sequence: Sequence, draft: readonly number[], logits: StepLogits): number {
    let accepted = 0
    guard(sequence, () => {
      this.#sampleToken(sequence, logits.row(0))
      while (sequence.state === 'running' && sequence.tokenIds.at(-1) === draft[accepted]) {
        accepted += 1
        this.#sampleToken(sequence, logits.row(accepted))
      }
    })
    return 1 + accepted
  }

  #sampleToken(sequence: Sequence, logits: Float32Array): void {
    const { request } = sequence
    const { contextLength } = this.#options
    const early = findEnd(sequence, contextLength)
    if (early !== undefined) {
      sequence.finish(early)
      return
    }
    const token: SampledToken = request.sampler.next(logits, sequence.numGenerated)
    if (request.endTokenIds.has(token.tokenId)) {
      sequence.finish('endOfText')
      return
    }
    sequence.tokenIds.push(token.tokenId)
    this.#tokens += 1
    const reason = request.onToken(token) ? findEnd(sequence, contextLength) : 'stopped'
    if (reason !== undefined) sequence.finish(reason)
  }

  /** After a failed run the cache may be invalid, so none of it is reused. */
  #failAll(sequences: readonly Sequence[], error: unknown): void {
    for (const sequence of sequences) {
      if (sequence.state !== 'done') sequence.fail(error)
      this.#scheduler.remove(sequence, { keeps: false })
    }
    this.#scheduler.slots.dropIdle()
  }

  /**
   * Ends a sequence at once; a slot that the step in flight uses is released when that step ends.
   */
  #cancel(sequence: Sequence): void {
    if (sequence.state === 'done') return
    const wasWaiting = sequence.state === 'waiting'
    sequence.fail(new CancelledError())
    if (wasWaiting) this.#scheduler.remove(sequence, { keeps: false })
  }
}

/** Runs a callback of a sequence; an error thrown there ends that sequence only. */
function guard(sequence: Sequence, callback: () => void): void {
  if (sequence.state === 'done') return
  try {
    callback()
  } catch (error) {
    sequence.fail(error)
  }
}

/**
 * Works on rows in order. When they take long, the event loop runs in between, and the result is a
 * promise of the remaining rows.
 */
function eachRow(
  { start, end }: { readonly start: number; readonly end: number },
  work: (row: number) => void,
): Promise<void> | undefined {
  const startedAtMs = performance.now()
  for (let row = start; row < end; row += 1) {
    if (row > start && performance.now() - startedAtMs >= SAMPLING_TURN_MS) {
      return setImmediate().then(() => eachRow({ start: row, end }, work))
    }
    work(row)
  }
  return undefined
}

/** The reason why a sequence needs no further token, if there is one. */
function findEnd(sequence: Sequence, contextLength: number): SequenceEnd['reason'] | undefined {
  const { request, numGenerated, tokenIds } = sequence
  const last = request.generatedTokenIds.at(-1)
  if (last !== undefined && numGenerated === request.generatedTokenIds.length) {
    if (request.endTokenIds.has(last)) return 'endOfText'
  }
  if (numGenerated >= request.maxNewTokens || tokenIds.length >= contextLength) return 'length'
  return undefined
}
