import { expect, it } from 'vitest'

import { BatchingWindow } from '#workers/audio/window-encoder.ts'

const settled = () => new Promise((resolve) => setImmediate(resolve))

it('keeps work back until all that had begun before its end has ended too', async () => {
  const window = new BatchingWindow()
  const log: string[] = []
  const [one, other, later] = [0, 0, 0].map(() => Promise.withResolvers<string>())
  const note = (value: string) => log.push(value)
  void window.join(one!.promise).then(note)
  void window.join(other!.promise).then(note)
  one!.resolve('one')
  await settled()
  expect(log).toEqual([])
  void window.join(later!.promise).then(note)
  other!.resolve('other')
  await settled()
  // The first does not wait for what began after its end; the second does.
  expect(log).toEqual(['one'])
  later!.resolve('later')
  await settled()
  expect(log.toSorted()).toEqual(['later', 'one', 'other'])
})

it('lets work that fails fail alone', async () => {
  const window = new BatchingWindow()
  const [one, other] = [0, 0].map(() => Promise.withResolvers<string>())
  const first = window.join(one!.promise)
  const second = window.join(other!.promise)
  one!.resolve('one')
  other!.reject(new Error('not a sound'))
  await expect(second).rejects.toThrow('not a sound')
  await expect(first).resolves.toBe('one')
})
