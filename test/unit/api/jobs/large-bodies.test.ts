import { describe, expect, it } from 'vitest'

import { LargeBodies } from '#api/jobs/large-bodies.ts'

/** Bodies of 10 bytes, of which two are used at once, each until its end is called. */
function open() {
  const bodies = new LargeBodies(20)
  const used: string[] = []
  const ends = new Map<string, () => void>()
  let reading = 0
  let readingMax = 0
  const begin = (name: string, signal = new AbortController().signal) =>
    bodies.with(
      async () => {
        reading += 1
        readingMax = Math.max(readingMax, reading)
        await new Promise(setImmediate)
        reading -= 1
        return Buffer.alloc(10)
      },
      async () => {
        used.push(name)
        await new Promise<void>((resolve) => ends.set(name, resolve))
        return name
      },
      signal,
    )
  return { begin, used, end: (name: string) => ends.get(name)?.(), readingMax: () => readingMax }
}

describe('the large bodies of a process', () => {
  it('are read one after another, and wait while those in use reach the limit', async () => {
    const { begin, used, end, readingMax } = open()
    const [first, second, third] = ['a', 'b', 'c'].map((name) => begin(name))
    await expect.poll(() => used).toEqual(['a', 'b'])
    end('b')
    expect(await second).toBe('b')
    await expect.poll(() => used).toEqual(['a', 'b', 'c'])
    end('a')
    end('c')
    expect(await Promise.all([first, third])).toEqual(['a', 'c'])
    expect(readingMax()).toBe(1)
  })

  it('do not wait for one that is cancelled or cannot be read', async () => {
    const { begin, used, end } = open()
    const bodies = new LargeBodies(20)
    const lost = bodies.with(
      () => Promise.reject(new Error('lost')),
      async () => 0,
      never(),
    )
    await expect(lost).rejects.toThrow('lost')
    expect(
      await bodies.with(
        async () => Buffer.alloc(1),
        async () => 1,
        never(),
      ),
    ).toBe(1)

    const cancelling = new AbortController()
    const running = ['a', 'b'].map((name) => begin(name))
    const cancelled = begin('c', cancelling.signal)
    const last = begin('d')
    await expect.poll(() => used).toEqual(['a', 'b'])
    cancelling.abort(new Error('cancelled'))
    await expect(cancelled).rejects.toThrow('cancelled')
    await expect(begin('e', cancelling.signal)).rejects.toThrow('cancelled')
    end('a')
    await expect.poll(() => used).toEqual(['a', 'b', 'd'])
    end('b')
    end('d')
    await Promise.all([...running, last])
  })
})

const never = () => new AbortController().signal
