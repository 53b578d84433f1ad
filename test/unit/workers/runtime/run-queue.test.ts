import { expect, it } from 'vitest'

import { RunQueue } from '#workers/runtime/session.ts'

it('lets no more than its bound run, and the others in order of asking', async () => {
  const queue = new RunQueue(2)
  const order: string[] = []
  expect([queue.enter(), queue.enter()]).toEqual([undefined, undefined])
  const third = queue.enter()?.then(() => order.push('third'))
  const fourth = queue.enter()?.then(() => order.push('fourth'))
  expect(order).toEqual([])
  queue.leave()
  await third
  expect(order).toEqual(['third'])
  queue.leave()
  await fourth
  expect(order).toEqual(['third', 'fourth'])
  queue.leave()
  queue.leave()
  expect(queue.enter()).toBeUndefined()
})
