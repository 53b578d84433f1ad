import { describe, expect, it } from 'vitest'

import { CancelledError, INTERNAL_MESSAGE, ServiceError, toWireError } from '#shared/errors.ts'
import { PreparationPool } from '#workers/preparation/thread-pool.ts'
import { WorkBudget } from '#workers/preparation/work-budget.ts'

const SCRIPT = new URL('./hostile-thread.ts', import.meta.url)
const REFUSAL = { message: 'Too much to prepare.', code: 'invalid_json_schema' }

function openPool({ deadlineMs = 60_000, idleMs = 60_000 } = {}) {
  const limits = { deadlineMs, idleMs, memoryMibMax: 32, refusal: REFUSAL }
  const pool = new PreparationPool(limits, SCRIPT)
  const budget = new WorkBudget()
  const run = (plan: string, signal?: AbortSignal) =>
    pool.run({ kind: 'grammar', plan }, { param: 'response_format', budget, signal })
  return { run, budget }
}

const REFUSED = expect.objectContaining({ ...REFUSAL, status: 400, param: 'response_format' })

describe('the preparation pool', () => {
  it('charges the budget of the request for the steps of the thread', async () => {
    const { run, budget } = openPool()
    expect(await run('fine')).toEqual({ nodes: [], deadEnds: [] })
    expect(budget.used).toBe(7)
  })

  it('refuses a task after its deadline, and runs the next one in a new thread', async () => {
    const { run } = openPool({ deadlineMs: 3000 })
    const [late, next] = await Promise.allSettled([run('hang'), run('refuse')])
    expect(late).toMatchObject({ status: 'rejected', reason: REFUSED })
    expect(next).toMatchObject({ status: 'rejected', reason: { message: 'No.', param: 'tools' } })
  })

  it('refuses a task that fills the memory, and runs the next one in a new thread', async () => {
    const { run } = openPool()
    await expect(run('fill')).rejects.toEqual(REFUSED)
    expect(await run('fine')).toEqual({ nodes: [], deadEnds: [] })
  })

  it.each([
    ['crash', 'a defect of the thread'],
    ['reject', 'a defect of the thread'],
    ['exit', 'it ended by itself'],
    ['fail', 'no such file'],
  ])(
    'fails with 500 when the thread itself fails (%s), and starts a new one',
    async (plan, reason) => {
      const { run } = openPool()
      const error = await run(plan).catch((thrown: unknown) => thrown)
      // An error of no class for clients is answered as 500.
      expect(error).not.toBeInstanceOf(ServiceError)
      expect(error).toMatchObject({ message: expect.stringContaining(reason) })
      expect(toWireError(error)).toEqual({ kind: 'internal', message: INTERNAL_MESSAGE })
      expect(await run('fine')).toEqual({ nodes: [], deadEnds: [] })
    },
  )

  it('ends the thread of a cancelled request, and runs the next one in a new thread', async () => {
    const { run } = openPool()
    const cancelling = new AbortController()
    const cancelled = run('hang', cancelling.signal)
    const next = run('fine')
    cancelling.abort()
    await expect(cancelled).rejects.toThrow(CancelledError)
    expect(await next).toEqual({ nodes: [], deadEnds: [] })
  })

  it('runs tasks that arrive while an idle thread ends', async () => {
    const { run, budget } = openPool({ idleMs: 0 })
    for (let count = 1; count <= 20; count += 1) {
      // The timer of the idle thread fires in this turn, before the thread has ended.
      expect(await run('fine')).toEqual({ nodes: [], deadEnds: [] })
      await new Promise((resolve) => setTimeout(resolve, 1))
      expect(budget.used).toBe(7 * count)
    }
  })

  it('never starts a task that was cancelled while it waited', async () => {
    const { run, budget } = openPool()
    const running = run('fine')
    await expect(run('fine', AbortSignal.abort())).rejects.toThrow(CancelledError)
    await running
    expect(budget.used).toBe(7)
  })

  it('refuses tasks with 429 or 503 once 256 wait', async () => {
    const { run } = openPool()
    const cancelling = new AbortController()
    const tasks = Array.from({ length: 258 }, () => run('hang', cancelling.signal))
    await expect(tasks.at(-1)).rejects.toMatchObject({ code: 'over_capacity' })
    cancelling.abort()
    await Promise.allSettled(tasks)
  })
})
