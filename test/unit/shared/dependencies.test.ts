import { expect, it, onTestFinished, vi } from 'vitest'

import { systemClock } from '#shared/clock.ts'
import { Dependencies } from '#shared/dependencies.ts'

function watched(check: () => Promise<unknown>) {
  const lines: object[] = []
  const log = { error: (fields: object) => lines.push(fields), info: () => {} } as never
  const list = [{ name: 'storage', isRequired: false, remedy: 'check S3_ENDPOINT', check }]
  return { lines, dependencies: new Dependencies(list, { clock: systemClock, log }) }
}

it('keeps the first line of the reason with the state of a failed service', async () => {
  const { dependencies } = watched(() => Promise.reject(new Error('no bucket\n  at line 1')))
  expect(dependencies.failing).toEqual([])
  const [state] = await dependencies.states()
  expect(state).toMatchObject({ isOk: false, reason: 'no bucket' })
  expect(dependencies.failing).toEqual([state])
})

it('has no reason and no failure for a service that works', async () => {
  const { dependencies } = watched(async () => undefined)
  expect(await dependencies.states()).not.toHaveProperty('[0].reason')
  expect(dependencies.failing).toEqual([])
})

it('notices soon that a failing service works again, and when it fails anew', async () => {
  vi.useFakeTimers()
  onTestFinished(() => void vi.useRealTimers())
  let isOk = false
  const { dependencies } = watched(async () => {
    if (!isOk) throw new Error('refused')
  })
  const watching = new AbortController()
  dependencies.watch(watching.signal)
  await vi.advanceTimersByTimeAsync(1000)
  expect(dependencies.failing).toHaveLength(1)
  isOk = true
  await vi.advanceTimersByTimeAsync(3000)
  expect(dependencies.failing).toEqual([])
  watching.abort()
  isOk = false
  await vi.advanceTimersByTimeAsync(30_000)
  expect(dependencies.failing).toEqual([])
})

it('logs a failure even if nothing reads the states', async () => {
  const asked = Promise.withResolvers<void>()
  const { dependencies, lines } = watched(async () => {
    asked.resolve()
    throw new Error('refused')
  })
  const watching = new AbortController()
  dependencies.watch(watching.signal)
  await asked.promise
  await dependencies.states()
  watching.abort()
  expect(lines).toMatchObject([{ dependency: 'storage', err: { message: 'refused' } }])
})
