import { expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { BatchingWindow } from '#workers/audio/window-encoder.ts'

const settled = () => new Promise((resolve) => setImmediate(resolve))

it('keeps work back until all that had begun before its end has ended too', async () => {
  const window = new BatchingWindow()
  const log: string[] = []
  const [one, other, later] = [0, 0, 0].map(() => Promise.withResolvers<string>())
  const note = (value: string) => log.push(value)
  void window.join(defined(one).promise).then(note)
  void window.join(defined(other).promise).then(note)
  defined(one).resolve('one')
  await settled()
  expect(log).toEqual([])
  void window.join(defined(later).promise).then(note)
  defined(other).resolve('other')
  await settled()
  // The first does not wait for what began after its end; the second does.
  expect(log).toEqual(['one'])
  defined(later).resolve('later')
  await settled()
  expect(log.toSorted()).toEqual(['later', 'one', 'other'])
})

it('fails only the work that fails', async () => {
  const window = new BatchingWindow()
  const [one, other] = [0, 0].map(() => Promise.withResolvers<string>())
  const first = window.join(defined(one).promise)
  const second = window.join(defined(other).promise)
  defined(one).resolve('one')
  defined(other).reject(new Error('not a sound'))
  await expect(second).rejects.toThrow('not a sound')
  await expect(first).resolves.toBe('one')
})
