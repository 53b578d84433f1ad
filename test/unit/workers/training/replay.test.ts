import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { readReplay, replayOf } from '#workers/training/replay.ts'

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-replay-'))
})
afterAll(() => rm(folder, { recursive: true }))

const LIMITS = { tokensMax: 4, vocabularySize: 100 }
const read = async (...lines: string[]) => {
  await writeFile(join(folder, 'replay.jsonl'), lines.join('\n'))
  return await readReplay(folder, LIMITS)
}

describe('the replayed examples of a model', () => {
  it('are empty if its folder has no file of them', async () => {
    const nowhere = join(folder, 'nowhere')
    expect(await readReplay(nowhere, LIMITS)).toEqual({ examples: [], digest: null })
  })

  it('are those of the file that fit and contain something to learn', async () => {
    const { examples } = await read(
      '{"token_ids":[1,2,3],"targets":[[1,3]]}',
      '{"token_ids":[1,2,3],"targets":[]}',
      '{"token_ids":[1,2,3,4,5],"targets":[[1,5]]}',
      '',
    )
    expect(examples).toEqual([{ tokenIds: [1, 2, 3], isTarget: [false, true, true] }])
  })

  it.each([
    'no JSON',
    '[]',
    '{"targets":[]}',
    '{"token_ids":[100],"targets":[]}',
    '{"token_ids":[1.5],"targets":[]}',
    '{"token_ids":["1"],"targets":[]}',
    '{"token_ids":[1],"targets":[[0]]}',
    '{"token_ids":[1],"targets":[[-1,1]]}',
    '{"token_ids":[1],"targets":{}}',
  ])('are refused with the line %s', async (line) => {
    await expect(read('{"token_ids":[1,2],"targets":[[1,2]]}', line)).rejects.toThrow(
      'The file replay.jsonl of the model has no example in line 2.',
    )
  })

  it('are drawn for each step by the seed', () => {
    const examples = Array.from({ length: 50 }, (_, id) => ({ tokenIds: [id], isTarget: [true] }))
    const draw = (seed: number, step: number) => replayOf(examples, { seed, step, batchSize: 7 })
    expect(draw(1, 0)).toHaveLength(7)
    expect(draw(1, 0)).toEqual(draw(1, 0))
    expect(draw(1, 0)).not.toEqual(draw(1, 1))
    expect(draw(1, 0)).not.toEqual(draw(2, 0))
    expect(replayOf([], { seed: 1, step: 0, batchSize: 7 })).toEqual([])
  })
})
