import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { startPostgres } from '#launcher/embedded/postgres.ts'
import { startRedis } from '#launcher/embedded/redis.ts'
import { startTiers, type Tiers } from '#test/support/tiers.ts'

import { CLIENTS, type ClientUnderTest } from './clients.ts'
import { logFileOf, runClient } from './run-client.ts'
import { writeRows } from './write-table.ts'

// Runs the scripts of clients against one API process and one worker with the models that ship, and
// writes the results into the table of docs/clients.md. Packages are installed below
// `.data/clients` and kept there.
//
//   npm run test:clients -- [name…; all if absent]

const NAME = 'clients'
const say = (text: string): void => void process.stdout.write(`${text}\n`)

async function main(names: readonly string[]): Promise<number> {
  const unknown = names.filter((name) => !CLIENTS.some((client) => client.name === name))
  if (unknown.length > 0) {
    say(
      `Unknown client ${unknown.join(', ')}. There are: ${CLIENTS.map(({ name }) => name).join(', ')}`,
    )
    return 2
  }
  const chosen = CLIENTS.filter(({ name }) => names.length === 0 || names.includes(name))
  const folder = await mkdtemp(join(tmpdir(), 'millrace-clients-'))
  const closers: (() => Promise<unknown>)[] = [() => rm(folder, { recursive: true, force: true })]
  try {
    const tiers = await startServer(folder, closers)
    return await runAll(chosen, tiers)
  } finally {
    for (const close of closers.reverse()) await close()
  }
}

async function startServer(folder: string, closers: (() => Promise<unknown>)[]): Promise<Tiers> {
  const postgres = await startPostgres(folder, { password: NAME })
  closers.push(() => postgres.stop())
  const redis = await startRedis(folder, { password: NAME, onProgress: say })
  closers.push(() => redis.stop())
  const tiers = await startTiers({
    databaseUrl: postgres.url,
    redisUrl: redis.url,
    folder,
    keyPrefix: NAME,
  })
  closers.push(() => tiers.stop())
  await tiers.startWorker()
  return tiers
}

async function runAll(clients: readonly ClientUnderTest[], tiers: Tiers): Promise<number> {
  let failed = 0
  for (const client of clients) {
    const results = await runClient(client, { url: tiers.url, apiKey: tiers.apiKey })
    const problems = results.filter(({ problem }) => problem !== null)
    failed += problems.length
    say(`${client.name}: ${results.length - problems.length} of ${results.length} features`)
    for (const { feature, problem } of problems) say(`  ${feature}: ${problem}`)
    if (problems.length > 0) say(`  ${logFileOf(client.name)}`)
    await writeRows([{ client, results }])
  }
  return failed === 0 ? 0 : 1
}

process.exitCode = await main(process.argv.slice(2))
