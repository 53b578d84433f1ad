import { describe, expect, it } from 'vitest'

import type { JobLife, LifeAction, LifeEvent } from '#shared/queue/job-life.ts'
import { advance, beginLife, judgeFetched } from '#shared/queue/job-life.ts'

/** Tokens of the modelled answer. */
const TOKENS = 2
const CRASHES_MAX = 3
const FLUSHES_MAX = 1
const DUPLICATES_MAX = 1

interface Frame {
  readonly epoch: number
  readonly runId: string
  readonly seq: number
  readonly says: 'started' | 'delta' | 'result' | 'yielded'
  readonly token: number
}

interface Run {
  readonly epoch: number
  readonly runId: string
  readonly seq: number
  /** The next token that this run produces. */
  readonly next: number
}

/** Everything that exists: an owner, a queue, a stream and two workers of one slot each. */
interface World {
  readonly life: JobLife
  readonly delivered: number
  readonly answers: number
  readonly endings: number
  /** Epochs in the queue with their resume points; a duplicate delivery appears twice. */
  readonly queue: readonly { readonly epoch: number; readonly from: number }[]
  readonly stream: readonly Frame[]
  readonly workers: readonly (Run | null)[]
  readonly cancelled: readonly number[]
  readonly claimed: readonly number[]
  readonly taken: number
  readonly freed: number
  readonly crashes: number
  readonly flushes: number
  readonly duplicates: number
}

const START: World = {
  life: beginLife(),
  delivered: 0,
  answers: 0,
  endings: 0,
  queue: [{ epoch: 1, from: 0 }],
  stream: [],
  workers: [null, null],
  cancelled: [],
  claimed: [],
  taken: 0,
  freed: 0,
  crashes: 0,
  flushes: 0,
  duplicates: 0,
}

/** The owner takes an event: the product's transition, and what its action does to the world. */
function own(world: World, event: LifeEvent, token?: number): World {
  const before = world.life
  const { life, action } = advance(before, event)
  check(life.epoch >= before.epoch, 'an epoch shrank')
  let next: World = { ...world, life }
  if (action === 'deliver' && token !== undefined) {
    // The stream is unbroken and unrepeated.
    check(token === world.delivered, 'the stream broke')
    next = { ...next, delivered: world.delivered + 1 }
  }
  if (action === 'answer') {
    check(world.delivered === TOKENS, 'the answer has a hole')
    next = { ...next, answers: world.answers + 1 }
  }
  const ends: readonly LifeAction[] = [
    'answer',
    'fail',
    'deadLetter',
    'failExhausted',
    'expire',
    'cancel',
  ]
  if (ends.includes(action)) next = { ...next, endings: world.endings + 1 }
  const stops: readonly LifeAction[] = ['resubmit', 'cancel', 'expire', 'deadLetter', 'pause']
  if (stops.includes(action)) next = cancel(next, before.epoch)
  if (action === 'resubmit') {
    next = { ...next, queue: [...next.queue, { epoch: life.epoch, from: next.delivered }] }
  }
  check(next.endings <= 1, 'two endings')
  return next
}

function cancel(world: World, epoch: number): World {
  const queue = world.queue.filter((entry) => entry.epoch !== epoch)
  return { ...world, queue, cancelled: [...new Set([...world.cancelled, epoch])].toSorted() }
}

/** Every world that may follow. */
function* follow(world: World): Generator<World> {
  yield* workerMoves(world)
  yield* faults(world)
  const [frame, ...stream] = world.stream
  if (frame !== undefined) {
    const token = frame.says === 'delta' ? frame.token : undefined
    yield own({ ...world, stream }, { type: 'reply', ...frame }, token)
  }
  yield own(world, { type: 'abandon' })
  yield own(world, { type: 'deadline' })
  if (world.life.phase === 'running') yield own(world, { type: 'overflow' })
  // A client that has read everything has also read what the stream still holds back from it.
  if (world.life.phase === 'paused') yield own(world, { type: 'caughtUp' })
}

function* workerMoves(world: World): Generator<World> {
  for (const [index, run] of world.workers.entries()) {
    const put = (value: Run | null): World['workers'] => world.workers.with(index, value)
    if (run === null) {
      const [entry, ...queue] = world.queue
      if (entry === undefined) continue
      const verdict = judgeFetched({
        nowMs: 0,
        deadlineAtMs: 1,
        isCancelled: world.cancelled.includes(entry.epoch),
        isClaimed: !world.claimed.includes(entry.epoch),
        isOwnerAlive: world.life.phase !== 'ended',
        isOwnerless: false,
      })
      if (verdict !== 'run') {
        yield { ...world, queue }
        continue
      }
      const runId = `${entry.epoch}.${index}.${world.taken}`
      yield {
        ...world,
        queue,
        claimed: [...world.claimed, entry.epoch],
        workers: put({ epoch: entry.epoch, runId, seq: 0, next: entry.from }),
        taken: world.taken + 1,
      }
      continue
    }
    const { epoch, runId } = run
    const seq = run.seq + 1
    const say = (says: Frame['says'], value: Run | null): World => ({
      ...world,
      stream: [...world.stream, { epoch, runId, seq, says, token: run.next }],
      workers: put(value),
      freed: world.freed + (value === null ? 1 : 0),
    })
    if (world.cancelled.includes(epoch)) {
      yield { ...world, workers: put(null), freed: world.freed + 1 }
    }
    // The message of a cancel may be late, so the run may go on beside it.
    if (run.seq === 0) yield say('started', { ...run, seq })
    else if (run.next < TOKENS) yield say('delta', { ...run, seq, next: run.next + 1 })
    else yield say('result', null)
    yield say('yielded', null)
  }
}

function* faults(world: World): Generator<World> {
  if (world.crashes < CRASHES_MAX) {
    for (const [index, run] of world.workers.entries()) {
      if (run === null) continue
      const workers = world.workers.with(index, null)
      const crashed = { ...world, workers, crashes: world.crashes + 1, freed: world.freed + 1 }
      yield own(crashed, { type: 'workerLost', epoch: run.epoch })
    }
    // The owner may be wrong: the worker is frozen, not dead, and speaks again later.
    yield own(
      { ...world, crashes: world.crashes + 1 },
      { type: 'workerLost', epoch: world.life.epoch },
    )
  }
  if (world.flushes < FLUSHES_MAX) {
    const empty = { ...world, queue: [], stream: [], cancelled: [], claimed: [] }
    yield own(
      { ...empty, flushes: world.flushes + 1 },
      { type: 'jobLost', epoch: world.life.epoch },
    )
  }
  const [entry] = world.queue
  if (entry !== undefined && world.duplicates < DUPLICATES_MAX) {
    yield { ...world, queue: [...world.queue, entry], duplicates: world.duplicates + 1 }
  }
}

describe('the model of a job', () => {
  it('holds in every state that faults can lead to', () => {
    const STATES_MAX = 150_000
    const seen = new Set<string>()
    let frontier: World[] = [START]
    while (frontier.length > 0 && seen.size < STATES_MAX) {
      const next: World[] = []
      for (const world of frontier) {
        for (const follower of follow(world)) {
          const name = JSON.stringify(follower)
          if (seen.has(name)) continue
          seen.add(name)
          next.push(follower)
          const running = follower.workers.filter((run) => run !== null).length
          check(follower.taken === follower.freed + running, 'a slot was lost')
          check(follower.answers <= 1, 'two answers')
          const isOwed = follower.life.phase !== 'ended'
          check(isOwed || follower.endings === 1, 'accepted, but never ended')
        }
      }
      frontier = next
    }
    expect(seen.size).toBeGreaterThanOrEqual(100_000)
  })

  it('always ends when faults cease: the answer arrives, complete and once', () => {
    // From random worlds after random faults, only progress is left.
    for (let seed = 1; seed <= 10_000; seed += 1) {
      const random = lcg(seed)
      let world = START
      for (let step = 0; step < 25; step += 1) {
        const choices = [...follow(world)].filter((next) => next.endings === 0)
        const chosen = choices[Math.floor(random() * choices.length)]
        if (chosen === undefined) break
        world = chosen
      }
      expect(settle(world).endings).toBe(1)
    }
  })
})

/** Lets workers and owner work; a job that is nowhere is found lost, as the watch would find it. */
function settle(world: World): World {
  let current = world
  for (let step = 0; step < 500 && current.endings === 0; step += 1) {
    const [frame, ...stream] = current.stream
    if (frame !== undefined) {
      const token = frame.says === 'delta' ? frame.token : undefined
      current = own({ ...current, stream }, { type: 'reply', ...frame }, token)
      continue
    }
    if (current.life.phase === 'paused') {
      current = own(current, { type: 'caughtUp' })
      continue
    }
    const [move] = workerMoves(current)
    current = move ?? own(current, { type: 'jobLost', epoch: current.life.epoch })
  }
  return current
}

/** Cheaper than `expect`, which counts here: it runs a million times. */
function check(holds: boolean, breach: string): void {
  if (!holds) throw new Error(breach)
}

function lcg(seed: number): () => number {
  let state = seed
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return state / 2 ** 32
  }
}
