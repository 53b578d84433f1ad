import { expect, it } from 'vitest'

import { closeOnFailure, openAll } from '#workers/runtime/close-on-failure.ts'

function opened(name: string, closed: string[]) {
  return {
    name,
    async close() {
      closed.push(name)
    },
  }
}

it('keeps resources open if the construction succeeds', async () => {
  const closed: string[] = []
  await expect(closeOnFailure(opened('one', closed), ({ name }) => name)).resolves.toBe('one')
  const all = await openAll([opened('one', closed), opened('other', closed)].map(async (it) => it))
  expect(all.map(({ name }) => name)).toEqual(['one', 'other'])
  expect(closed).toEqual([])
})

it('closes resources if the construction fails', async () => {
  const closed: string[] = []
  const making = closeOnFailure(opened('one', closed), () => Promise.reject(new Error('no')))
  await expect(making).rejects.toThrow('no')
  expect(closed).toEqual(['one'])
})

it('closes resources that were opened beside a failure, however late', async () => {
  const closed: string[] = []
  const late = new Promise<void>((resolve) => setImmediate(resolve))
  const opening = openAll([
    Promise.resolve(opened('early', closed)),
    Promise.reject(new Error('no such file')),
    late.then(() => opened('late', closed)),
  ])
  await expect(opening).rejects.toThrow('no such file')
  expect(closed.toSorted()).toEqual(['early', 'late'])
})
