import { describe, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { Scheduler } from '#workers/engine/scheduler.ts'

import { add, admitAll, describeStep, end, OPTIONS, take } from './scheduling.ts'

describe('the scheduler', () => {
  it('admits in order of arrival while there are slots', () => {
    const scheduler = new Scheduler(OPTIONS)
    const sequences = [10, 20, 30, 40].map((first) => add(scheduler, { length: 6, first }))
    admitAll(scheduler)
    expect(sequences.map(({ state }) => state)).toEqual([
      'running',
      'running',
      'running',
      'waiting',
    ])
    end(scheduler, defined(sequences[1]))
    admitAll(scheduler)
    expect(sequences[3]).toMatchObject({ state: 'running', slot: 1 })
  })

  it('starts a job without running texts before further candidates of another', () => {
    const scheduler = new Scheduler(OPTIONS)
    const job = {}
    const candidates = [10, 20, 30, 40, 50].map((first) =>
      add(scheduler, { length: 6, first }, { job }),
    )
    admitAll(scheduler)
    const other = add(scheduler, { length: 6, first: 60 }, { job: {} })
    end(scheduler, defined(candidates[0]))
    admitAll(scheduler)
    expect(other.state).toBe('running')
    expect(candidates.map(({ state }) => state)).toEqual([
      ...['done', 'running', 'running', 'waiting', 'waiting'],
    ])
    end(scheduler, other)
    admitAll(scheduler)
    expect(candidates[3]?.state).toBe('running')
  })

  it('runs at most one chunk of a prompt between two decode steps', () => {
    const scheduler = new Scheduler(OPTIONS)
    const decoding = add(scheduler, { length: 3, first: 10 })
    admitAll(scheduler)
    take(scheduler)
    add(scheduler, { length: 20, first: 50 })
    admitAll(scheduler)
    expect(Array.from({ length: 6 }, () => describeStep(take(scheduler)))).toEqual([
      'decode 1',
      'prefill 4',
      'decode 1',
      'prefill 4',
      'decode 1',
      'prefill 4',
    ])
    expect(decoding.numGenerated).toBe(4)
  })

  it('cuts a lone prompt to runs as long as a decode step beside streams, and not without', () => {
    const scheduler = new Scheduler({ ...OPTIONS, prefillChunk: 128, contextLength: 2000 })
    const stream = add(scheduler, { length: 3, first: 10 })
    admitAll(scheduler)
    take(scheduler)
    scheduler.noteDecode(10)
    const prompt = add(scheduler, { length: 900, first: 50 })
    admitAll(scheduler)
    const nextChunk = (runMs: number): number => {
      for (;;) {
        const step = take(scheduler)
        if (step.kind !== 'prefill') continue
        scheduler.notePrefill(step.count, runMs)
        return step.count
      }
    }
    // Quick runs make the next ones longer, slow ones shorter, down to a least length.
    expect([2, 2, 9, 30, 30, 30].map(nextChunk)).toEqual([16, 32, 64, 64, 32, 16])
    const other = add(scheduler, { length: 900, first: 1200 })
    admitAll(scheduler)
    expect([20, 20].map(nextChunk)).toEqual([32, 32])
    end(scheduler, stream)
    end(scheduler, other)
    expect(nextChunk(100)).toBe(128)
    expect(prompt.isDecoding).toBe(false)
  })

  it('runs as many short prompts between two decode steps as fit into the time of one', () => {
    const scheduler = new Scheduler({ ...OPTIONS, slots: 8 })
    add(scheduler, { length: 3, first: 0 })
    admitAll(scheduler)
    take(scheduler)
    scheduler.noteDecode(10)
    for (let first = 10; first <= 60; first += 10) add(scheduler, { length: 3, first })
    admitAll(scheduler)
    const nextStep = (runMs: number): string => {
      const step = take(scheduler)
      if (step.kind === 'prefill') scheduler.notePrefill(step.count, runMs)
      return describeStep(step)
    }
    const runsMs = [0, 4, 4, 0, 6, 0, 3, 3, 3, 0]
    expect(runsMs.map(nextStep)).toEqual([
      ...['decode 1', 'prefill 3', 'prefill 3'],
      ...['decode 3', 'prefill 3'],
      ...['decode 4', 'prefill 3', 'prefill 3', 'prefill 3'],
      'decode 7',
    ])
  })

  it('alternates between prompts, so that a short one overtakes a long one', () => {
    const scheduler = new Scheduler(OPTIONS)
    const long = add(scheduler, { length: 40, first: 10 })
    const short = add(scheduler, { length: 7, first: 60 })
    admitAll(scheduler)
    const order = Array.from({ length: 4 }, () => take(scheduler)).map((step) =>
      step.kind === 'prefill' ? step.sequence : undefined,
    )
    expect(order).toEqual([long, short, long, short])
    expect(short.isDecoding).toBe(true)
  })

  it('decodes every running sequence in one step', () => {
    const scheduler = new Scheduler(OPTIONS)
    for (const first of [10, 20, 30]) add(scheduler, { length: 3, first })
    admitAll(scheduler)
    for (let turn = 0; turn < 5; turn += 1) take(scheduler)
    expect(describeStep(take(scheduler))).toBe('decode 3')
  })

  it('delays a sequence whose prefix another one is computing, but not others', () => {
    const scheduler = new Scheduler({ ...OPTIONS, prefillChunk: 8 })
    const first = add(scheduler, { length: 16, first: 10 })
    admitAll(scheduler)
    const twin = add(scheduler, { length: 16, first: 10 })
    const other = add(scheduler, { length: 6, first: 70 })
    admitAll(scheduler)
    expect([twin.state, other.state]).toEqual(['waiting', 'running'])
    while (first.numMissing > 1) take(scheduler)
    admitAll(scheduler)
    expect(twin).toMatchObject({ state: 'running', cachedTokens: 14 })
  })

  it('shares no prefix between scopes, nor if prompt logits are requested', () => {
    const scheduler = new Scheduler({ ...OPTIONS, prefillChunk: 16 })
    add(scheduler, { length: 16, first: 10 })
    admitAll(scheduler)
    take(scheduler)
    const stranger = add(scheduler, { length: 16, first: 10 }, { cacheScope: 'other' })
    const scored = add(scheduler, { length: 16, first: 10 }, { onPromptLogits: () => undefined })
    admitAll(scheduler)
    expect([stranger.cachedTokens, scored.cachedTokens]).toEqual([0, 0])
  })

  it.each([
    { behind: 1, isInPlace: true },
    { behind: 16, isInPlace: true },
    { behind: 17, isInPlace: false },
  ])('continues a prefix where it lies: $isInPlace with $behind positions behind it', (row) => {
    const scheduler = new Scheduler({ ...OPTIONS, prefillChunk: 64 })
    const held = add(scheduler, { length: 20 + row.behind, first: 10 })
    admitAll(scheduler)
    take(scheduler)
    end(scheduler, held)
    const shared = Array.from({ length: 20 }, (_, index) => 10 + index)
    add(scheduler, { length: 0, first: 0 }, { promptTokenIds: [...shared, 90, 91] })
    const { slot, source, prefixLength } = defined(scheduler.canAdmit()).placement
    expect({ prefixLength, isInPlace: slot === source }).toEqual({
      prefixLength: 20,
      isInPlace: row.isInPlace,
    })
  })

  it('shares nothing of a finished sequence that was written over', () => {
    const scheduler = new Scheduler({ ...OPTIONS, prefillChunk: 64 })
    const held = add(scheduler, { length: 20, first: 10 })
    admitAll(scheduler)
    take(scheduler)
    const { slot } = held
    end(scheduler, held)
    scheduler.slots.truncate(slot, 8)
    add(scheduler, { length: 24, first: 10 })
    expect(defined(scheduler.canAdmit()).placement).toMatchObject({ source: slot, prefixLength: 8 })
  })

  it('keeps the caches of the most recently finished sequences', () => {
    const scheduler = new Scheduler({ ...OPTIONS, prefillChunk: 16 })
    const sequences = [10, 30, 50].map((first) => add(scheduler, { length: 8, first }))
    admitAll(scheduler)
    for (let turn = 0; turn < 5; turn += 1) take(scheduler)
    for (const index of [1, 0, 2]) end(scheduler, defined(sequences[index]))
    const stranger = add(scheduler, { length: 8, first: 90 })
    admitAll(scheduler)
    expect(stranger.slot).toBe(1)
  })

  it('cuts a text like an undisturbed run if that changes the numbers', () => {
    const scheduler = new Scheduler({ ...OPTIONS, reusesPrefixes: false })
    add(scheduler, { length: 6, first: 10 }, { generatedTokenIds: [1, 2, 3] })
    admitAll(scheduler)
    const steps = Array.from({ length: 5 }, () => describeStep(take(scheduler)))
    expect(steps).toEqual(['prefill 4', 'prefill 2', 'prefill 1', 'prefill 1', 'decode 1'])
  })

  it.each([
    [true, ['prefill 4', 'decode 1']],
    [false, ['prefill 1', 'prefill 1', 'prefill 1', 'prefill 1', 'decode 1']],
  ])(
    'scores every position of a prompt if the graph gives all logits: %s',
    (givesAllLogits, steps) => {
      const scheduler = new Scheduler({ ...OPTIONS, givesAllLogits })
      add(scheduler, { length: 4, first: 10 }, { onPromptLogits: () => undefined })
      admitAll(scheduler)
      expect(steps.map(() => describeStep(take(scheduler)))).toEqual(steps)
    },
  )

  it('does not run a single position of a prompt separately', () => {
    const scheduler = new Scheduler(OPTIONS)
    add(scheduler, { length: 9, first: 10 })
    admitAll(scheduler)
    const steps = Array.from({ length: 4 }, () => describeStep(take(scheduler)))
    expect(steps).toEqual(['prefill 4', 'prefill 3', 'prefill 2', 'decode 1'])
  })

  it.each([
    [1, ['prefill 3', 'decode 2', 'decode 2', 'decode 2', 'decode 2', 'decode 2']],
    [4000, ['prefill 3', 'decode 1', 'prefill 4', 'decode 2', 'decode 2', 'decode 2']],
  ])(
    'repeats the decode steps of a text that goes on here if they are short (%i ms)',
    (decodeMs, expected) => {
      const scheduler = new Scheduler(OPTIONS)
      const other = add(scheduler, { length: 3, first: 40 })
      admitAll(scheduler)
      while (!other.isDecoding) take(scheduler)
      take(scheduler)
      scheduler.noteDecode(decodeMs)
      const generatedTokenIds = [1, 2, 3, 4]
      const moved = add(scheduler, { length: 3, first: 10 }, { generatedTokenIds })
      admitAll(scheduler)
      const steps = Array.from({ length: 6 }, () => describeStep(take(scheduler)))
      expect(steps).toEqual(expected)
      expect(moved.isDecoding).toBe(true)
    },
  )

  it('speculates only for a lone sequence, and ever more rarely while guesses fail', () => {
    const scheduler = new Scheduler(OPTIONS)
    add(scheduler, { length: 3, first: 10 }, { propose: () => [1, 2, 3, 4, 5], maxNewTokens: 90 })
    admitAll(scheduler)
    take(scheduler)
    const kinds = Array.from({ length: 12 }, () => take(scheduler).kind)
    expect(kinds.map((kind) => kind[0]).join('')).toBe('vdvddvddddvd')
    add(scheduler, { length: 3, first: 40 })
    admitAll(scheduler)
    const shared = Array.from({ length: 12 }, () => take(scheduler).kind)
    expect(shared).not.toContain('verify')
  })

  it('drafts no further than the length allows', () => {
    const scheduler = new Scheduler(OPTIONS)
    add(scheduler, { length: 3, first: 10 }, { propose: () => [1, 2, 3, 4, 5], maxNewTokens: 4 })
    admitAll(scheduler)
    take(scheduler)
    expect(scheduler.next()).toMatchObject({ kind: 'verify', draft: [1, 2] })
  })
})
