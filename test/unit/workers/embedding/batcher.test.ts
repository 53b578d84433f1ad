import { describe, expect, it } from 'vitest'

import { CancelledError } from '#shared/errors.ts'
import { Batcher } from '#workers/embedding/batcher.ts'

const FOREVER = new AbortController().signal

/** A batcher over words that records its batches; a word's result is its upper case. */
function recording(
  maxBatchTokens: number,
  maxBatchSize = 100,
  options: { readonly poolSize?: number; readonly sharedBatchTokens?: number } = {},
) {
  const batches: string[][] = []
  const alone: boolean[] = []
  let running = 0
  let mostRunning = 0
  const batcher = new Batcher<string, string>({
    maxBatchTokens,
    maxBatchSize,
    ...options,
    lengthOf: (word) => word.length,
    async run(words, isAlone) {
      batches.push([...words])
      alone.push(isAlone)
      running += 1
      mostRunning = Math.max(mostRunning, running)
      await new Promise((resolve) => setImmediate(resolve))
      running -= 1
      return words.map((word) => word.toUpperCase())
    },
  })
  const submit = (...words: string[]) =>
    Promise.all(words.map((word) => batcher.submit(word, FOREVER)))
  return { batcher, batches, alone, submit, mostRunning: () => mostRunning }
}

describe('the batcher', () => {
  it('gives every item its own result', async () => {
    const { submit } = recording(4)
    expect(await submit('a', 'bbb', 'cc', 'dddd')).toEqual(['A', 'BBB', 'CC', 'DDDD'])
  })

  it('grows a batch while its longest item times its size fits', async () => {
    const { batches, submit } = recording(6)
    await submit('aa', 'bb', 'cc', 'dd')
    expect(batches).toEqual([['aa', 'bb', 'cc'], ['dd']])
  })

  it('runs an item that exceeds the whole budget in a separate batch', async () => {
    const { batches, submit } = recording(3)
    await submit('aaaaaa', 'b')
    expect(batches).toEqual([['aaaaaa'], ['b']])
  })

  it('begins with the oldest item and adds those nearest in length', async () => {
    const { batches, submit } = recording(8)
    await submit('aaa', 'bbbbbbbb', 'cc', 'ddd')
    expect(batches).toEqual([['aaa', 'ddd'], ['bbbbbbbb'], ['cc']])
  })

  it('has at most its largest count', async () => {
    const { batches, submit } = recording(1000, 2)
    await submit('a', 'b', 'c')
    expect(batches).toEqual([['a', 'b'], ['c']])
  })

  it('runs as many batches side by side as its pool has sessions, and reports a single one', async () => {
    const batcher = recording(100, 100, { poolSize: 2, sharedBatchTokens: 4 })
    await batcher.submit('a')
    await batcher.submit('aa', 'bb', 'cc', 'dd', 'ee')
    expect(batcher.batches).toEqual([['a'], ['aa', 'bb'], ['cc', 'dd'], ['ee']])
    expect(batcher.alone[0]).toBe(true)
    expect(batcher.alone.slice(1, 3)).toEqual([false, false])
    expect(batcher.mostRunning()).toBe(2)
  })

  it('moves items to another batch if they would mostly be padding', async () => {
    const { batches, submit } = recording(100_000)
    const [long, short] = ['a'.repeat(300), 'b'.repeat(100)]
    await submit(long, short, long)
    expect(batches).toEqual([[long, long], [short]])
  })

  it('lets short items of any length share a batch if padding costs nothing', async () => {
    const { batches, submit } = recording(100_000)
    const [long, short] = ['a'.repeat(100), 'b']
    await submit(long, short)
    expect(batches).toEqual([[long, short]])
  })

  it('drops an item whose caller left before it ran', async () => {
    const { batcher, batches } = recording(1)
    const abort = new AbortController()
    const kept = batcher.submit('a', FOREVER)
    const dropped = batcher.submit('b', abort.signal)
    abort.abort()
    await expect(dropped).rejects.toThrow(CancelledError)
    await kept
    expect(batches).toEqual([['a']])
    expect(batcher.waitingCount).toBe(0)
  })

  it('lets the jobs begin batches in turn, so that a large one does not delay the others', async () => {
    const { batcher, batches } = recording(2)
    const [large, ...small] = [1, 2, 3].map(() => new AbortController().signal) as [AbortSignal]
    const submitted = ['a1', 'a2', 'a3', 'a4'].map((item) => batcher.submit(item, large))
    for (const [at, signal] of small.entries()) submitted.push(batcher.submit(`b${at}`, signal))
    await Promise.all(submitted)
    expect(batches.flat()).toEqual(['a1', 'b0', 'b1', 'a2', 'a3', 'a4'])
  })

  it('keeps items apart that cannot be in one batch', async () => {
    const batches: string[][] = []
    const batcher = new Batcher<string, string>({
      maxBatchTokens: 10,
      maxBatchSize: 10,
      lengthOf: () => 1,
      canJoin: ([first], word) => word.startsWith(first as string),
      async run(words) {
        batches.push([...words])
        return [...words]
      },
    })
    const words = ['a1', 'b1', 'a2', 'b2']
    expect(await Promise.all(words.map((word) => batcher.submit(word, FOREVER)))).toEqual(words)
    expect(batches).toEqual([
      ['a1', 'a2'],
      ['b1', 'b2'],
    ])
  })

  it('joins callers that continue, although the second one arrived during a batch', async () => {
    const batches: string[][] = []
    const release: (() => void)[] = []
    const batcher = new Batcher<string, string>({
      maxBatchTokens: 10,
      maxBatchSize: 10,
      lengthOf: () => 1,
      areItemsContinued: true,
      async run(words) {
        batches.push([...words])
        await new Promise<void>((resolve) => release.push(resolve))
        return [...words]
      },
    })
    const follow = async (name: string) => {
      for (const step of [1, 2]) await batcher.submit(`${name}${step}`, FOREVER)
    }
    const first = follow('a')
    await expect.poll(() => release.length).toBe(1)
    const second = follow('b')
    for (const at of [0, 1, 2]) {
      await expect.poll(() => release.length).toBe(at + 1)
      release[at]?.()
    }
    await Promise.all([first, second])
    expect(batches).toEqual([['a1'], ['b1', 'a2'], ['b2']])
  })

  it('fails the items of a failed batch and continues', async () => {
    let isFirst = true
    const batcher = new Batcher<string, string>({
      maxBatchTokens: 1,
      maxBatchSize: 1,
      lengthOf: () => 1,
      async run(words) {
        if (!isFirst) return [...words]
        isFirst = false
        throw new Error('the run failed')
      },
    })
    const outcomes = await Promise.allSettled(
      ['a', 'b'].map((word) => batcher.submit(word, FOREVER)),
    )
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'fulfilled'])
  })
})
