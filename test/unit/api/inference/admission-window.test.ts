import { describe, expect, it } from 'vitest'

import { AdmissionWindow } from '#api/jobs/admission.ts'

describe('the window of a queue', () => {
  const ticket = (position: number) => ({ generation: 'g', position })

  it('predicts the ticket after the last of the same organization', () => {
    const window = new AdmissionWindow()
    window.recordAssigned('a', ticket(7), 0, 0)
    expect(window.predictTicket('a', 100, 10)).toEqual(ticket(8))
    expect(window.predictTicket('a', 100, 10)).toEqual(ticket(9))
  })

  it('predicts the ticket after the newest start for another', () => {
    const window = new AdmissionWindow()
    window.recordAssigned('a', ticket(7), 0, 0)
    window.noteStart(ticket(4))
    window.noteStart(ticket(3))
    expect(window.predictTicket('b', 100, 10)).toEqual(ticket(5))
  })

  it.each([
    ['nothing was ticket lately', 1, 5000],
    ['the queue is half full', 50, 10],
  ])('does not guess when %s', (_, depth, nowMs) => {
    const window = new AdmissionWindow()
    window.recordAssigned('a', ticket(7), depth, 0)
    expect(window.predictTicket('a', 99, nowMs)).toBeUndefined()
  })
})
