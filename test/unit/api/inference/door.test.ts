import { describe, expect, it } from 'vitest'

import { Door } from '#api/inference/jobs/door.ts'

describe('the door of a queue', () => {
  const dealt = (turn: number) => ({ generation: 'g', turn })

  it('guesses the turn after the last of the same organization', () => {
    const door = new Door()
    door.noteDealt('a', dealt(7), 0, 0)
    expect(door.guessTurn('a', 100, 10)).toEqual(dealt(8))
    expect(door.guessTurn('a', 100, 10)).toEqual(dealt(9))
  })

  it('guesses the turn after the newest start for another', () => {
    const door = new Door()
    door.noteDealt('a', dealt(7), 0, 0)
    door.noteStart(dealt(4))
    door.noteStart(dealt(3))
    expect(door.guessTurn('b', 100, 10)).toEqual(dealt(5))
  })

  it.each([
    ['nothing was dealt lately', 1, 5000],
    ['the queue is half full', 50, 10],
  ])('does not guess when %s', (_, depth, nowMs) => {
    const door = new Door()
    door.noteDealt('a', dealt(7), depth, 0)
    expect(door.guessTurn('a', 99, nowMs)).toBeUndefined()
  })
})
