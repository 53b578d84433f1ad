import { expect, it } from 'vitest'

import { readGenerationRules } from '#workers/text/generation-rules.ts'

it('names the settings of a model that are not followed and would change its answers', () => {
  const ignoredOf = (generation: object) => readGenerationRules([{ ...generation }]).ignored
  expect(
    ignoredOf({ typical_p: 0.9, num_beams: 4, length_penalty: 2, stop_strings: ['.'] }),
  ).toEqual(['typical_p', 'num_beams', 'length_penalty', 'stop_strings'])
  const neutral = { typical_p: 1, num_beams: 1, length_penalty: 2, stop_strings: null }
  expect(ignoredOf({ ...neutral, top_p: 0.8, bad_words_ids: [[1]], temperature: 0.6 })).toEqual([])
  expect(ignoredOf({ no_repeat_ngram_size: 100 })).toEqual(['no_repeat_ngram_size'])
  expect(readGenerationRules([undefined]).ignored).toEqual([])
})
