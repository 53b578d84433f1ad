import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import { startPostgres } from '#launcher/embedded/postgres.ts'
import { startRedis } from '#launcher/embedded/redis.ts'

import {
  checkOut,
  latestTag,
  type Place,
  type Release,
  ROOT,
  startApi,
  startWorker,
  type TierProcess,
} from './release.ts'
import { startTraffic } from './traffic.ts'

// Replaces the API and worker processes of an earlier release by those of this tree, one by one,
// while
// requests of every family are in flight: none of them may fail.
//
//   npm run test:upgrade -- [commit or tag; the latest tag if absent]

/** Answers of each kind that are waited for between two replacements. */
const ANSWERS_BETWEEN = 2
/** The time after which a proxy no longer uses a removed address. */
const PROXY_DELAY_MS = 500

const say = (text: string): void => void process.stdout.write(`${text}\n`)

/** The processes of an installation; the API processes in the list are those that get requests. */
interface Fleet {
  readonly place: Place
  readonly apis: TierProcess[]
  readonly workers: TierProcess[]
}

async function main(): Promise<number> {
  const ref = process.argv[2] ?? latestTag()
  if (ref === undefined) {
    say(
      'There is no release tag yet: name the commit to upgrade from, as in `npm run test:upgrade -- HEAD~10`.',
    )
    return 2
  }
  const folder = await mkdtemp(join(tmpdir(), 'millrace-upgrade-'))
  const closers: (() => Promise<unknown>)[] = [() => rm(folder, { recursive: true, force: true })]
  try {
    const [before, after] = [await checkOut(ref, folder), { name: 'this tree', root: ROOT }]
    const postgres = await startPostgres(folder, { password: 'upgrade' })
    closers.push(() => postgres.stop())
    const redis = await startRedis(folder, { password: 'upgrade', onProgress: say })
    closers.push(() => redis.stop())
    const place = { databaseUrl: postgres.url, redisUrl: redis.url, folder }
    const fleet: Fleet = { place, apis: [], workers: [] }
    closers.push(() => Promise.all([...fleet.apis, ...fleet.workers].map((one) => one.stop())))
    return await upgrade(fleet, before, after)
  } finally {
    for (const close of closers.reverse()) await close()
  }
}

async function upgrade(fleet: Fleet, before: Release, after: Release): Promise<number> {
  const { place, apis, workers } = fleet
  say(`two API processes and two workers of ${before.name}`)
  for (let count = 0; count < 2; count += 1) {
    apis.push(await startApi(before, place))
    workers.push(await startWorker(before, place))
  }
  let turn = 0
  const traffic = await startTraffic(() => {
    turn += 1
    return apis[turn % apis.length]?.url ?? ''
  })
  try {
    await traffic.settle(ANSWERS_BETWEEN)
    for (let count = 0; count < 2 && traffic.faults.length === 0; count += 1) {
      await replace(workers, () => startWorker(after, place))
      say(`worker ${count + 1} is of ${after.name}`)
      await traffic.settle(ANSWERS_BETWEEN)
      await replace(apis, () => startApi(after, place))
      say(`API process ${count + 1} is of ${after.name}`)
      await traffic.settle(ANSWERS_BETWEEN)
    }
  } finally {
    await traffic.stop()
  }
  for (const { kind, url, reason } of traffic.faults) say(`FAILED ${kind} at ${url}: ${reason}`)
  const answered = Object.entries(traffic.counts).map(([kind, count]) => `${count} ${kind}`)
  say(`answered: ${answered.join(', ')}; failed: ${traffic.faults.length}`)
  return traffic.faults.length === 0 ? 0 : 1
}

/**
 * Puts a new process in the place of the oldest: first it is ready, then the other gets no more,
 * then that ends.
 */
async function replace(processes: TierProcess[], start: () => Promise<TierProcess>): Promise<void> {
  processes.push(await start())
  const oldest = processes.shift()
  await sleep(PROXY_DELAY_MS)
  await oldest?.stop()
}

process.exitCode = await main().catch((error: unknown) => {
  say(error instanceof Error ? error.message : String(error))
  return 2
})
