import { describe, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { Scheduler } from '#workers/engine/scheduler.ts'

import { add, admitAll, describeStep, end, OPTIONS, take } from './scheduling.ts'

describe('whole prompts', () => {
  it.each([
    ['of one length', 'sameLength', [4, 4, 4], ['prefill of 4 and 4 and 4', 'decode 3']],
    ['of other lengths too, where they do no harm', 'any', [3, 5], ['prefill of 3 and 5']],
    ['but not where they do', 'sameLength', [3, 5, 3], ['prefill of 3 and 3', 'decode 2']],
    ['but not mostly padding', 'any', [3, 7, 6], ['prefill of 3 and 6', 'decode 2', 'prefill 7']],
    ['as many as a chunk holds', 'any', [5, 5, 5, 5], ['prefill of 5 and 5 and 5', 'decode 3']],
    ['but none of one token, which rounds otherwise', 'any', [1, 1], ['prefill 1', 'decode 1']],
    ['but none that goes on', 'any', [20, 20], ['prefill 16', 'prefill 16', 'prefill 4']],
    ['but none where rows change each other', 'none', [4, 4], ['prefill 4', 'decode 1']],
  ] as const)('share a run: %s', (_name, batchesPrompts, lengths, expected) => {
    const scheduler = new Scheduler({ ...OPTIONS, slots: 8, prefillChunk: 16, batchesPrompts })
    for (const [index, length] of lengths.entries()) {
      add(scheduler, { length, first: 100 * (index + 1) })
    }
    admitAll(scheduler)
    expect(expected.map(() => describeStep(take(scheduler)))).toEqual(expected)
  })

  it('run separately if their logits are requested, or a part is in the cache', () => {
    const options = { ...OPTIONS, slots: 8, prefillChunk: 32, batchesPrompts: 'any' } as const
    const scheduler = new Scheduler(options)
    const finished = add(scheduler, { length: 30, first: 10 })
    admitAll(scheduler)
    take(scheduler)
    end(scheduler, finished)
    add(scheduler, { length: 8, first: 400 }, { onPromptLogits: () => undefined })
    add(scheduler, { length: 9, first: 500 })
    add(scheduler, { length: 9, first: 10 })
    add(scheduler, { length: 9, first: 600 })
    admitAll(scheduler)
    const steps = Array.from({ length: 5 }, () => describeStep(take(scheduler)))
    expect(steps).toEqual(['prefill 8', 'decode 1', 'prefill of 9 and 9', 'decode 3', 'prefill 2'])
  })

  it('wait for others if a queue has formed, but not for long', () => {
    const options = { ...OPTIONS, slots: 4, prefillChunk: 64, batchesPrompts: 'any' } as const
    const scheduler = new Scheduler(options)
    const first = [1, 2, 3, 4].map((place) => add(scheduler, { length: 5, first: 100 * place }))
    for (const place of [5, 6, 7]) add(scheduler, { length: 5, first: 100 * place })
    admitAll(scheduler)
    const next = (count: number): string[] => {
      admitAll(scheduler)
      return Array.from({ length: count }, () => describeStep(take(scheduler)))
    }
    expect(next(2)).toEqual(['prefill of 5 and 5 and 5 and 5', 'decode 4'])
    end(scheduler, defined(first[0]))
    expect(next(2)).toEqual(['decode 3', 'decode 3'])
    end(scheduler, defined(first[1]))
    // The first of the two has waited for four steps.
    expect(next(4)).toEqual(['decode 2', 'decode 2', 'prefill of 5 and 5', 'decode 4'])
    end(scheduler, defined(first[2]))
    // The queue is empty.
    expect(next(2)).toEqual(['prefill 5', 'decode 4'])
  })
})
