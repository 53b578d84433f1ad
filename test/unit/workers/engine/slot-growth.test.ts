import { afterEach, describe, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { Engine } from '#workers/engine/engine.ts'
import type { ModelRunner } from '#workers/engine/model-runner.ts'
import { Scheduler, type Step } from '#workers/engine/scheduler.ts'
import type { SlotTable } from '#workers/engine/slots.ts'
import { uniformAt } from '#workers/sampling/counter-random.ts'

import { generate } from './generate.ts'
import { AS_EXPORTED, closeEngines, makePrompt, ON_DEVICE, openEngine } from './open-engine.ts'
import { add, admitAll, end, OPTIONS, take } from './scheduling.ts'

afterEach(closeEngines)

// Memory for 300 positions.
const GROWING = { ...OPTIONS, slotsMax: 12 }
/** A text that may come to have 60 positions. */
const SHORT = { length: 10 }

describe('slots that are added under load', () => {
  it('hold as many texts as fit into the memory of the others', () => {
    const scheduler = new Scheduler(GROWING)
    const texts = [10, 30, 50, 70, 90, 110].map((first) => add(scheduler, { ...SHORT, first }))
    admitAll(scheduler)
    expect(texts.map(({ slot }) => slot)).toEqual([0, 1, 2, 3, 4, -1])
    end(scheduler, defined(texts[1]))
    admitAll(scheduler)
    expect(texts[5]).toMatchObject({ state: 'running', slot: 1 })
  })

  it('delay a text that does not fit, and those behind it as well', () => {
    const scheduler = new Scheduler(GROWING)
    const texts = [10, 30, 50, 70].map((first) => add(scheduler, { ...SHORT, first }))
    const long = add(scheduler, { length: 30, first: 100 }, { maxNewTokens: 500 })
    const late = add(scheduler, { length: 3, first: 150 }, { maxNewTokens: 2 })
    admitAll(scheduler)
    expect([long.state, late.state]).toEqual(['waiting', 'waiting'])
    end(scheduler, defined(texts[0]))
    admitAll(scheduler)
    expect([long.state, late.state]).toEqual(['running', 'running'])
  })

  it('never keep a text from a slot that it has without them', () => {
    const scheduler = new Scheduler(GROWING)
    const long = [10, 50, 90].map((first) => {
      return add(scheduler, { length: 30, first }, { maxNewTokens: 500 })
    })
    admitAll(scheduler)
    expect(long.map(({ state }) => state)).toEqual(['running', 'running', 'running'])
  })

  it('count how many texts like the present ones fit', () => {
    const { slots } = new Scheduler(GROWING)
    const scheduler = new Scheduler(GROWING)
    const texts = [10, 30].map((first) => add(scheduler, { ...SHORT, first }))
    expect(slots.countFitting(texts)).toBe(5)
    expect(slots.countFitting([])).toBe(12)
    const long = add(scheduler, { length: 30, first: 100 }, { maxNewTokens: 500 })
    expect(slots.countFitting([long])).toBe(3)
  })

  it('free the memory of ended texts, the oldest first, but not the prefix of the next', () => {
    const scheduler = new Scheduler({ ...GROWING, slots: 2, contextLength: 50, prefillChunk: 30 })
    const texts = [10, 100, 200].map((first) => {
      const text = add(scheduler, { length: 30, first }, { maxNewTokens: 2 })
      admitAll(scheduler)
      while (text.numMissing > 1) take(scheduler)
      return text
    })
    for (const text of texts) end(scheduler, text)
    expect(scheduler.slots.takeReleases()).toEqual([])
    const promptTokenIds = [...Array.from({ length: 13 }, (_, at) => 10 + at), 7, 7, 7]
    const next = add(scheduler, { length: 0, first: 0 }, { promptTokenIds, maxNewTokens: 30 })
    const { placement } = defined(scheduler.canAdmit())
    expect(placement).toEqual({ slot: 1, source: 0, prefixLength: 13 })
    scheduler.admit(next, placement)
    const dropped = scheduler.slots.takeReleases().filter(({ from }) => from === 0)
    expect(dropped).toEqual([{ slot: 2, from: 0 }])
  })

  it('never have more memory than all others together', async () => {
    const meter = makeMeter()
    const options = { ...GROWING, prefillChunk: 8, waitingMax: 1000 }
    const engine = new Engine(meter, options)
    let activeMax = 0
    engine.onStep(() => {
      activeMax = Math.max(activeMax, engine.stats().active)
    })
    const texts = Array.from({ length: 300 }, (_, index) => {
      const draw = (what: number, count: number) => Math.floor(uniformAt(5, index, what) * count)
      const length = 1 + draw(0, draw(1, 4) === 0 ? 90 : 20)
      const start = draw(2, 4)
      const promptTokenIds = Array.from({ length }, (_, at) => (at < 12 ? start : start + index))
      const signal = draw(3, 5) === 0 ? { signal: AbortSignal.timeout(draw(4, 20)) } : {}
      return generate(engine, { promptTokenIds, maxNewTokens: draw(5, 60), ...signal })
    })
    await Promise.allSettled(texts)
    expect(activeMax).toBeGreaterThan(GROWING.slots)
    expect(meter.positionsMax).toBeLessThanOrEqual(GROWING.slots * GROWING.contextLength)
  })

  it.each(['llama-in-place', 'llama'])('run texts of %s beside each other', async (name) => {
    const engine = await openEngine(name, { slots: 2, slotsMax: 8 })
    const alone = await openEngine(name, { slots: 1 })
    let activeMax = 0
    engine.onStep(() => {
      activeMax = Math.max(activeMax, engine.stats().active)
    })
    const requests = Array.from({ length: 8 }, (_, index) => {
      return { promptTokenIds: makePrompt(index, 5 + index), maxNewTokens: 6 }
    })
    const answers = await Promise.all(requests.map((request) => generate(engine, request)))
    expect(activeMax).toBe(8)
    for (const [index, { tokenIds }] of answers.entries()) {
      expect((await generate(alone, defined(requests[index]))).tokenIds).toEqual(tokenIds)
    }
  })

  it.each([AS_EXPORTED, ON_DEVICE])('do not exist with the cache %o', async (form) => {
    const engine = await openEngine('llama', { slots: 2, slotsMax: 8, ...form })
    expect(engine.slotsMax).toBe(2)
  })
})

/** A runner that counts the positions that have memory, and moves texts into gaps. */
function makeMeter(): ModelRunner & { positionsMax: number } {
  const held = Array.from({ length: GROWING.slotsMax }, () => 0)
  const write = (slot: number, length: number): void => {
    held[slot] = Math.max(defined(held[slot]), length)
  }
  const release = ({ slot, from }: { slot: number; from: number }): void => {
    held[slot] = Math.min(defined(held[slot]), from)
  }
  const moveLast = (slots: SlotTable): void => {
    const indices = [...held.keys()]
    const last = indices.findLast((index) => slots.at(index).owner !== undefined) ?? 0
    const gap = indices.find((index) => slots.at(index).owner === undefined) ?? last
    if (gap >= last) return
    const lengths = [slots.at(gap).length, slots.at(last).length] as const
    slots.swap(gap, last)
    write(last, lengths[0])
    write(gap, lengths[1])
    for (const each of slots.takeReleases()) release(each)
  }
  return {
    positionsMax: 0,
    copyPrefix: (source, target, length) => {
      expect(held[source]).toBeGreaterThanOrEqual(length)
      write(target, length)
    },
    releaseMemory: release,
    async run(step: Step, slots) {
      await new Promise(setImmediate)
      const sequences = 'sequences' in step ? step.sequences : [step.sequence]
      if (step.kind === 'decode') moveLast(slots)
      const count = step.kind === 'prefill' ? step.count : 1
      for (const { slot, numComputed } of sequences) write(slot, numComputed + count)
      this.positionsMax = Math.max(
        this.positionsMax,
        held.reduce((sum, each) => sum + each),
      )
      return { numRows: 64, row: () => new Float32Array(8) }
    },
    close() {},
  }
}
