import { describe, expect, it } from 'vitest'

import { AdmissionWindow } from '#api/inference/jobs/admission-window.ts'

describe('the window of a queue', () => {
  const dealt = (turn: number) => ({ generation: 'g', turn })

  it('guesses the turn after the last of the same organization', () => {
    const window = new AdmissionWindow()
    window.recordAssigned('a', dealt(7), 0, 0)
    expect(window.predictTicket('a', 100, 10)).toEqual(dealt(8))
    expect(window.predictTicket('a', 100, 10)).toEqual(dealt(9))
  })

  it('guesses the turn after the newest start for another', () => {
    const window = new AdmissionWindow()
    window.recordAssigned('a', dealt(7), 0, 0)
    window.noteStart(dealt(4))
    window.noteStart(dealt(3))
    expect(window.predictTicket('b', 100, 10)).toEqual(dealt(5))
  })

  it.each([
    ['nothing was dealt lately', 1, 5000],
    ['the queue is half full', 50, 10],
  ])('does not guess when %s', (_, depth, nowMs) => {
    const window = new AdmissionWindow()
    window.recordAssigned('a', dealt(7), depth, 0)
    expect(window.predictTicket('a', 99, nowMs)).toBeUndefined()
  })
})
