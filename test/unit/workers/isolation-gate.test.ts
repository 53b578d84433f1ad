import { describe, expect, it } from 'vitest'

import { IsolationGate, type Passage } from '#workers/server/job-claims.ts'

/** Enters and says whether the gate has opened yet. */
function enter(gate: IsolationGate, isSuspect: boolean, signal = new AbortController().signal) {
  const state: { passage?: Passage; error?: unknown } = {}
  gate.enter(isSuspect, signal).then(
    (passage) => {
      state.passage = passage
    },
    (error: unknown) => {
      state.error = error
    },
  )
  return state
}
const settle = () => new Promise((resolve) => setImmediate(resolve))

describe('the isolation gate', () => {
  it('lets ordinary jobs pass together', async () => {
    const gate = new IsolationGate()
    const jobs = [enter(gate, false), enter(gate, false)]
    await settle()
    expect(jobs.every(({ passage }) => passage !== undefined)).toBe(true)
  })

  it('holds a suspect until every unproven job is proven, and others until it is', async () => {
    const gate = new IsolationGate()
    const first = enter(gate, false)
    const suspect = enter(gate, true)
    const later = enter(gate, false)
    await settle()
    expect([suspect.passage, later.passage]).toEqual([undefined, undefined])
    first.passage?.prove()
    await settle()
    expect(suspect.passage).toBeDefined()
    expect(later.passage).toBeUndefined()
    suspect.passage?.leave()
    suspect.passage?.leave()
    await settle()
    expect(later.passage).toBeDefined()
  })

  it('admits the waiting jobs behind when the first one is cancelled', async () => {
    const gate = new IsolationGate()
    enter(gate, false)
    const abort = new AbortController()
    const suspect = enter(gate, true, abort.signal)
    const later = enter(gate, false)
    abort.abort(new Error('left'))
    await settle()
    expect(suspect.error).toMatchObject({ message: 'left' })
    expect(later.passage).toBeDefined()
  })
})
