import { defined } from '#shared/json.ts'
import type { Scheduler, SchedulerOptions, Step } from '#workers/engine/scheduler.ts'
import { Sequence } from '#workers/engine/slots.ts'

import { makeRequest, type RequestChanges } from './generate.ts'

/** Few slots and short chunks; prompts run one by one. */
export const OPTIONS: SchedulerOptions = {
  slots: 3,
  prefillChunk: 4,
  contextLength: 100,
  reusesPrefixes: true,
  givesAllLogits: true,
  batchesPrompts: 'none',
  draftMax: 4,
}

/** A greedy text of so many tokens, counting up from `first`. */
export function add(
  scheduler: Scheduler,
  { length, first }: { length: number; first: number },
  changes: RequestChanges = {},
): Sequence {
  const promptTokenIds = Array.from({ length }, (_, index) => first + index)
  const ignore = (): void => undefined
  const request = makeRequest({ promptTokenIds, maxNewTokens: 50, ...changes })
  const sequence = new Sequence(request, ignore, ignore)
  scheduler.add(sequence)
  return sequence
}

/** Starts all that have a place. */
export function admitAll(scheduler: Scheduler): void {
  for (let next = scheduler.canAdmit(); next; next = scheduler.canAdmit()) {
    scheduler.admit(next.sequence, next.placement)
  }
}

/** Takes the next step as the engine does, with token 0 as every choice. */
export function take(scheduler: Scheduler): Step {
  const step = defined(scheduler.next())
  const sequences = 'sequences' in step ? step.sequences : [step.sequence]
  const count = step.kind === 'prefill' ? step.count : 1
  for (const sequence of sequences) {
    const isWhole = step.kind === 'batchPrefill' && sequence.numGenerated === 0
    if (isWhole || sequence.numMissing === count) sequence.tokenIds.push(0)
  }
  scheduler.settle(step, count)
  return step
}

/** Ends a text between two steps. */
export function end(scheduler: Scheduler, sequence: Sequence): void {
  sequence.finish('stopped')
  scheduler.sweep()
}

/** A step in words. */
export function describeStep(step: Step): string {
  if (step.kind === 'decode') return `decode ${step.sequences.length}`
  if (step.kind === 'batchPrefill') {
    return `prefill of ${step.sequences.map(({ numPrompt }) => numPrompt).join(' and ')}`
  }
  return step.kind === 'prefill' ? `prefill ${step.count}` : `verify ${step.draft.length}`
}
