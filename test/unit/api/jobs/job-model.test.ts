import { describe, expect, it } from 'vitest'

import { isOpen, type ModelRow, NEW_ROW, type Runner, stepRow } from '#test/support/job-model.ts'

/** Events of the modelled answer. */
const EVENTS = 2
const CRASHES_MAX = 2
const RUNNERS = ['a', 'b'] as const

/** A run of the request in one process: how many events it has read of the job's own replies. */
interface Run {
  readonly read: number
  /** Events that the log had when the run began, or that it has added since. */
  readonly next: number
}

/** A row, two processes, the replies of the workers, the log of events, and a client. */
interface World {
  readonly row: ModelRow
  readonly runs: Readonly<Record<Runner, Run | null>>
  /** Replies of the workers: they are in one stream, which every run reads from its start. */
  readonly replies: number
  /** The numbers of the logged events. */
  readonly log: readonly number[]
  /** Events in the result. */
  readonly result: number
  /** Events that the client has. */
  readonly seen: number
  readonly crashes: number
}

const START: World = {
  row: NEW_ROW,
  runs: { a: null, b: null },
  replies: 0,
  log: [],
  result: 0,
  seen: 0,
  crashes: 0,
}

/** Every world that may follow without a fault. */
function* progress(world: World): Generator<World> {
  const { row, log, seen } = world
  for (const by of RUNNERS) yield* runnerMoves(world, by)
  yield { ...world, row: stepRow(row, { type: 'settle' }) }
  const isRunning = RUNNERS.some((by) => world.runs[by] !== null)
  if (isRunning && world.replies < EVENTS) yield { ...world, replies: world.replies + 1 }
  // A client reads the log, and the result once the job has ended.
  if (seen < log.length) yield { ...world, seen: seen + 1 }
  else if (row.state === 'completed' && seen < world.result) yield { ...world, seen: seen + 1 }
}

function* runnerMoves(world: World, by: Runner): Generator<World> {
  const { row, log } = world
  const run = world.runs[by]
  const set = (value: Run | null): World => ({ ...world, runs: { ...world.runs, [by]: value } })
  const claimed = stepRow(row, { type: 'claim', by })
  if (run === null) {
    if (claimed !== row) yield { ...set({ read: 0, next: log.length }), row: claimed }
    return
  }
  yield { ...world, row: stepRow(row, { type: 'renew', by }) }
  if (row.isCancelled) {
    yield { ...set(null), row: stepRow(row, { type: 'finish', by, as: 'cancelled' }) }
  }
  if (run.read < world.replies) {
    const read = run.read + 1
    if (read <= run.next) yield set({ ...run, read })
    // A place has one event: where another process added it first, the run ends.
    else if (log.length !== run.next) yield set(null)
    else yield { ...set({ read, next: read }), log: [...log, read] }
  } else if (run.read === EVENTS) {
    const ended = stepRow(row, { type: 'finish', by, as: 'completed' })
    check(ended === row || row.lease === by, 'a process without the lease ended the job')
    yield { ...set(null), row: ended, result: ended === row ? world.result : run.read }
  }
}

/** Every world that may follow, faults and clients' requests among them. */
function* follow(world: World): Generator<World> {
  yield* progress(world)
  const { row } = world
  for (const type of ['cancel', 'deadline', 'leaseExpires'] as const) {
    yield { ...world, row: stepRow(row, { type }) }
  }
  for (const by of RUNNERS) {
    if (world.runs[by] === null) continue
    const runs = { ...world.runs, [by]: null }
    const released = stepRow(row, { type: 'release', by })
    check(released === row || row.lease === by, 'a process without the lease released the job')
    yield { ...world, runs, row: released }
    if (world.crashes < CRASHES_MAX) yield { ...world, runs, crashes: world.crashes + 1 }
  }
}

function check(holds: boolean, breach: string): void {
  if (!holds) throw new Error(breach)
}

describe('the model of a background job', () => {
  it('holds in every state that crashes, lost leases and cancellations lead to', () => {
    const seen = new Map([[JSON.stringify(START), START]])
    let frontier = [START]
    while (frontier.length > 0) {
      const next: World[] = []
      for (const world of frontier) {
        for (const follower of follow(world)) {
          const name = JSON.stringify(follower)
          if (seen.has(name)) continue
          seen.set(name, follower)
          next.push(follower)
          const { row, log } = follower
          check(row.announced === (isOpen(row) ? 0 : 1), 'an end was not announced once')
          check(isOpen(world.row) || row.state === world.row.state, 'a job ended twice')
          check(
            log.every((event, place) => event === place + 1),
            'the events have a gap or a repeat',
          )
          check(row.state !== 'completed' || follower.result === EVENTS, 'a result has a hole')
          check(row.lease === null || row.state === 'in_progress', 'a lease outlived its run')
        }
      }
      frontier = next
    }
    expect(seen.size).toBeGreaterThan(5000)
    for (const world of seen.values()) check(ends(world), 'a job never ends')
  })
})

/** Whether the job ends, and its client has every event, when only progress is left. */
function ends(from: World): boolean {
  // A run of a process that lives renews its lease; the lease of a dead one expires.
  let world = from
  for (let step = 0; step < 100; step += 1) {
    const { row } = world
    const isDone = !isOpen(row)
    if (isDone && (row.state !== 'completed' || world.seen === EVENTS)) return true
    const moved = [...progress(world)].find((next) => isProgress(world, next))
    world = moved ?? { ...world, row: stepRow(row, { type: 'leaseExpires' }) }
  }
  return false
}

function isProgress(world: World, next: World): boolean {
  return JSON.stringify(world) !== JSON.stringify(next) && !isRenewal(world.row, next.row)
}

function isRenewal(row: ModelRow, next: ModelRow): boolean {
  return next.isLeaseLive && !row.isLeaseLive && next.lease === row.lease
}
