import { describe, expect, it } from 'vitest'

import type { JobLife, LifeEvent } from '#shared/queue/job-life.ts'
import { advance, beginLife, CHARGES_MAX, isSuspect } from '#shared/queue/job-life.ts'

const run = (events: readonly LifeEvent[], from: JobLife = beginLife()) => {
  const actions: string[] = []
  let life = from
  for (const event of events) {
    const transition = advance(life, event)
    life = transition.life
    actions.push(transition.action)
  }
  return { life, actions }
}
const reply = (
  says: Extract<LifeEvent, { type: 'reply' }>['says'],
  seq: number,
  epoch = 1,
  isRetryable = false,
): LifeEvent => ({ type: 'reply', epoch, runId: `run-${epoch}`, seq, says, isRetryable })
const lost = (epoch: number): LifeEvent => ({ type: 'workerLost', epoch })

describe('the life of a job', () => {
  it.each<[string, readonly LifeEvent[], readonly string[]]>([
    ['runs to its answer', [reply('started', 1), reply('result', 2)], ['deliver', 'answer']],
    ['is answered once', [reply('result', 1), reply('result', 2)], ['answer', 'ignore']],
    ['drops a repeated reply', [reply('started', 1), reply('started', 1)], ['deliver', 'ignore']],
    [
      'begins anew after a lost reply',
      [reply('started', 1), reply('delta', 3)],
      ['deliver', 'resubmit'],
    ],
    ['drops an older epoch', [lost(1), reply('started', 1, 1)], ['resubmit', 'ignore']],
    ['goes on after a yield', [reply('yielded', 1), reply('result', 1, 2)], ['resubmit', 'answer']],
    ['is lost once per epoch', [lost(1), lost(1)], ['resubmit', 'ignore']],
    [
      'is cleared of an earlier death by progress',
      [
        lost(1),
        reply('entered', 1, 2),
        reply('delta', 2, 2),
        lost(2),
        reply('entered', 1, 3),
        lost(3),
      ],
      ['resubmit', 'deliver', 'deliver', 'resubmit', 'deliver', 'resubmit'],
    ],
    [
      'is dead-lettered at the second death alone',
      [
        reply('started', 1),
        lost(1),
        reply('entered', 1, 2),
        lost(2),
        reply('entered', 1, 3),
        lost(3),
      ],
      ['deliver', 'resubmit', 'deliver', 'resubmit', 'deliver', 'deadLetter'],
    ],
    [
      'is answered after two deaths of an outside cause',
      [reply('started', 1), lost(1), reply('entered', 1, 2), lost(2), reply('result', 1, 3)],
      ['deliver', 'resubmit', 'deliver', 'resubmit', 'answer'],
    ],
    [
      'is not charged while it only waits in line as a suspect',
      [lost(1), lost(2), lost(3)],
      ['resubmit', 'resubmit', 'resubmit'],
    ],
    [
      'is not charged for a death after progress',
      [reply('delta', 1), lost(1), reply('delta', 1, 2), lost(2), reply('delta', 1, 3), lost(3)],
      ['deliver', 'resubmit', 'deliver', 'resubmit', 'deliver', 'resubmit'],
    ],
    [
      'is cleared of a death by later progress',
      [lost(1), reply('delta', 1, 2), lost(2), lost(3), reply('delta', 1, 4)],
      ['resubmit', 'deliver', 'resubmit', 'resubmit', 'deliver'],
    ],
    [
      'is tried once more after an internal failure',
      [reply('failed', 1, 1, true), reply('failed', 1, 2, true)],
      ['resubmit', 'fail'],
    ],
    [
      'is not tried again once something was delivered',
      [reply('delta', 1), reply('failed', 2, 1, true)],
      ['deliver', 'fail'],
    ],
    [
      'rests while its client does not read',
      [reply('delta', 1), { type: 'overflow' }, reply('delta', 2), lost(1), { type: 'caughtUp' }],
      ['deliver', 'pause', 'ignore', 'ignore', 'resubmit'],
    ],
    ['expires', [{ type: 'deadline' }, reply('result', 1)], ['expire', 'ignore']],
    ['is cancelled', [{ type: 'abandon' }, { type: 'deadline' }], ['cancel', 'ignore']],
  ])('%s', (_, events, actions) => {
    expect(run(events).actions).toEqual(actions)
  })

  it('listens to one run per epoch', () => {
    const { life } = run([reply('started', 1)])
    const other: LifeEvent = { type: 'reply', epoch: 1, runId: 'twin', seq: 2, says: 'result' }
    expect(advance(life, other).action).toBe('ignore')
  })

  it('is a suspect after a charged death and ends at the limit', () => {
    expect(isSuspect(run([lost(1)]).life)).toBe(true)
    expect(isSuspect(run([reply('delta', 1), lost(1)]).life)).toBe(false)
    expect(CHARGES_MAX).toBe(3)
  })
})
