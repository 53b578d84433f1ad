import { describe, expect, it } from 'vitest'

import { EditFollower } from '#workers/text/prompt-lookup.ts'

// Words are numbers; those above 100 begin one, the others go on with it.
const PROMPT = [900, 901, 110, 120, 121, 130, 140, 150, 160, 170, 180, 190]
const ORIGINAL_START = 2

function guess(...answers: (readonly number[])[]): readonly number[] {
  const follower = new EditFollower({
    promptTokenIds: PROMPT,
    originalStart: ORIGINAL_START,
    isWordStart: (tokenId) => tokenId % 10 === 0,
  })
  let guessed: readonly number[] = []
  const tokenIds = [...PROMPT]
  for (const answer of answers) {
    tokenIds.push(...answer)
    guessed = follower.propose(tokenIds)
  }
  return guessed
}

describe('the guess of how an edit goes on', () => {
  it.each([
    ['begins with the original', [], [110, 120, 121, 130, 140, 150, 160, 170]],
    ['goes on where the answer is', [[110, 120]], [121, 130, 140, 150, 160, 170, 180, 190]],
    ['skips a word that was replaced', [[110], [555]], [130, 140, 150, 160, 170, 180, 190]],
    ['goes on behind a replaced word', [[110], [555], [130]], [140, 150, 160, 170, 180, 190]],
    ['goes on behind words left out', [[110], [150]], [160, 170, 180, 190]],
    ['ends with the original', [[110, 120, 121, 130, 140, 150, 160, 170, 180, 190]], []],
    ['repeats the answer once its place is lost', [[7, 8, 9, 7, 8, 9, 7, 8]], [9, 7, 8]],
  ])('%s', (_name, answers, guessed) => {
    expect(guess(...(answers.length > 0 ? answers : [[]]))).toEqual(guessed)
  })
})
