import { setTimeout as sleep } from 'node:timers/promises'

import { describe, expect, it } from 'vitest'

import { createPace, type Pace } from '#api/auth/pace.ts'
import { systemClock } from '#shared/clock.ts'
import { failure } from '#shared/errors.ts'

describe('a pace', () => {
  it('makes nothing take as long as the work did', async () => {
    const pace = createPace(systemClock)
    await pace.run('mail', () => sleep(40))
    const startMs = performance.now()
    await pace.imitate('mail', () => sleep(10))
    // The work slept for 40 ms; timers may ring a millisecond early.
    expect(performance.now() - startMs).toBeGreaterThan(30)
  })

  it('lets what was done and what was not leave at the same time', async () => {
    const pace = createPace(systemClock)
    await pace.run('mail', () => sleep(40))
    // Quick work waits for what recent work took; so does an imitation.
    for (const ask of [() => pace.run('mail', async () => 'sent'), () => pace.imitate('mail')]) {
      const startMs = performance.now()
      await ask()
      expect(performance.now() - startMs).toBeGreaterThan(30)
    }
  })

  it('keeps refusals waiting too', async () => {
    const pace = createPace(systemClock)
    await pace.run('mail', () => sleep(40))
    const tooSoon = () => Promise.reject(failure.rateLimited('too soon'))
    for (const ask of [() => pace.run('mail', tooSoon), () => pace.imitate('mail', tooSoon)]) {
      const startMs = performance.now()
      await expect(ask()).rejects.toMatchObject({ kind: 'rateLimited' })
      expect(performance.now() - startMs).toBeGreaterThan(30)
    }
  })

  it('has the first of either kind leave at one moment, before there was any work', async () => {
    const asks = [
      (pace: Pace) => pace.run('mail', () => sleep(20)),
      (pace: Pace) => pace.imitate('mail', () => sleep(5)),
      (pace: Pace) => pace.imitate('mail'),
    ]
    for (const ask of asks) {
      const startMs = performance.now()
      await ask(createPace(systemClock))
      // The constant of the pace is 750 ms; timers may ring a millisecond early.
      expect(performance.now() - startMs).toBeGreaterThan(740)
    }
  })

  it('fails as the work failed last, until the work succeeds again', async () => {
    const pace = createPace(systemClock)
    const broken = failure.internal('the mail server is dead')
    const work = pace.run('mail', () => Promise.reject(broken))
    await expect(work).rejects.toBe(broken)
    await expect(pace.imitate('mail')).rejects.toBe(broken)
    await expect(pace.imitate('something else')).resolves.toBeUndefined()
    await pace.run('mail', async () => 'sent')
    await expect(pace.imitate('mail')).resolves.toBeUndefined()
  })

  it('does not hold against others what one client was refused for', async () => {
    const pace = createPace(systemClock)
    const refused = pace.run('mail', () => Promise.reject(failure.rateLimited('too soon')))
    await expect(refused).rejects.toMatchObject({ kind: 'rateLimited' })
    await expect(pace.imitate('mail')).resolves.toBeUndefined()
  })
})
