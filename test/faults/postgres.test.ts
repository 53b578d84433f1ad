import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

import { Client } from 'pg'
import { describe, expect } from 'vitest'

import { startPostgres } from '#launcher/embedded/postgres.ts'
import { post } from '#test/support/fault-client.ts'
import { openFaultProxy } from '#test/support/fault-proxy.ts'
import { quantile, report, scale } from '#test/support/fault-report.ts'
import { openToyTiers, type ToyTiers, timeUntil, toyBody } from '#test/support/fault-toy.ts'
import { sleep } from '#test/support/fault-world.ts'
import { it } from '#test/support/services.ts'
import { toyText } from '#test/support/toy-worker.ts'

const DOWN_MS = scale(30_000, 3000)
const ENV = {
  AUTH_MAILER_AUTOCONFIRM: 'true',
  // Longer than a hundred refreshes at once take on a busy machine.
  AUTH_SECURITY_REFRESH_TOKEN_REUSE_INTERVAL: '300',
  AUTH_RATE_LIMIT_TOKEN_REFRESH: '10000',
}

describe('Postgres', () => {
  it('R10: stops hard while requests run; R19: refreshes race', { timeout: 300_000 }, async ({
    redisUrl,
    keyPrefix,
    folder,
  }) => {
    let postgres = await startPostgres(folder, { password: 'test' })
    const proxy = await openFaultProxy(portOf(postgres.url))
    const databaseUrl = at(postgres.url, proxy.port)
    const tiers = await openToyTiers({ databaseUrl, redisUrl, keyPrefix, folder, env: ENV })
    try {
      await tiers.startToyWorker(16)
      await raceRefreshes(tiers, databaseUrl)

      expect((await tiers.post(toyBody('x', 1, false))).status).toBe(200)
      const pid = Number(
        (await readFile(join(folder, 'postgres/postmaster.pid'), 'utf8')).split('\n')[0],
      )
      const long = tiers.read('stepMs=50', DOWN_MS / 50)
      process.kill(pid, 'SIGQUIT')
      await timeUntil(() => !isAlive(pid))
      const { statuses, signInMs, signIns } = await askWhileDown(tiers, DOWN_MS)
      await postgres.stop()
      postgres = await startPostgres(folder, { password: 'test' })
      proxy.retarget(portOf(postgres.url))
      const backMs = await timeUntil(async () => (await signIn(tiers)).status !== 503)
      const revokedMs = await revokeAndWait(tiers, databaseUrl)
      const failed = statuses.filter((status) => status !== 200).length
      report('R10', {
        'down ms': DOWN_MS,
        'requests meanwhile': statuses.length,
        failed,
        'stream across it intact': String((await long).text === toyText(DOWN_MS / 50)),
        'sign-ins answered 503 with Retry-After': signIns,
        'sign-in refused after p99 ms': quantile(signInMs, 0.99),
        'sign-in back after ms': backMs,
        'revocation effective after ms': revokedMs,
      })
      expect(failed).toBe(0)
      expect(signIns).toBe(signInMs.length)
      expect((await long).text).toBe(toyText(DOWN_MS / 50))
    } finally {
      await tiers.stop()
      await postgres.stop()
      await proxy.close()
    }
  })
})

interface Issued {
  readonly refresh_token: string
}

async function raceRefreshes(tiers: ToyTiers, databaseUrl: string): Promise<void> {
  const credentials = { email: 'racer@example.test', password: 'a long enough password 7' }
  const signup = await post(tiers.api.url, '/signup', credentials)
  const { refresh_token: token } = (await signup.json()) as Issued
  expect(signup.status).toBe(200)
  const refresh = async (refreshToken: string) => {
    const path = '/token?grant_type=refresh_token'
    while (true) {
      const answer = await post(tiers.api.url, path, { refresh_token: refreshToken })
      const body = (await answer.json()) as Issued
      // An overloaded process refuses for a moment, and its client comes again.
      if (answer.status !== 503) return { status: answer.status, body }
    }
  }
  const answers = await Promise.all(Array.from({ length: 100 }, () => refresh(token)))
  const children = new Set(answers.map(({ body }) => body.refresh_token))
  const rows = await query(databaseUrl, 'select count(*)::int as n from refresh_tokens')
  // The grandchild exists, so the first token is neither current nor the one before it.
  const [child = ''] = children
  const grandchild = (await refresh(child)).body.refresh_token
  await refresh(grandchild)
  const theft = await refresh(token)
  const after = await refresh(grandchild)
  report('R19', {
    'parallel refreshes': answers.length,
    'answered 200': answers.filter(({ status }) => status === 200).length,
    children: children.size,
    'rows of the family': rows,
    'status of a reuse': theft.status,
    'status of the family after it': after.status,
  })
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]))
  expect([children.size, rows]).toEqual([1, 2])
  expect([theft.status, after.status]).toEqual([400, 400])
}

const signIn = (tiers: ToyTiers): Promise<Response> =>
  post(tiers.api.url, '/token?grant_type=password', { email: 'a@example.test', password: 'x' })

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

async function askWhileDown(tiers: ToyTiers, downMs: number) {
  const statuses: number[] = []
  const signInMs: number[] = []
  let signIns = 0
  const until = performance.now() + downMs
  while (performance.now() < until) {
    const answer = await tiers.post(toyBody('x', 3, false))
    await answer.text()
    statuses.push(answer.status)
    const from = performance.now()
    const refused = await signIn(tiers)
    await refused.text()
    signInMs.push(performance.now() - from)
    if (refused.status === 503 && Number(refused.headers.get('retry-after')) > 0) signIns += 1
    await sleep(100)
  }
  return { statuses, signInMs, signIns }
}

async function revokeAndWait(tiers: ToyTiers, databaseUrl: string): Promise<number> {
  await timeUntil(async () => (await tiers.post(toyBody('x', 1, false))).status === 200)
  await query(
    databaseUrl,
    'with gone as (update api_keys set revoked_at = now() returning 1) select 1 as n',
  )
  return timeUntil(async () => (await tiers.post(toyBody('x', 1, false))).status === 401)
}

async function query(databaseUrl: string, statement: string): Promise<number> {
  const client = new Client({ connectionString: databaseUrl })
  await client.connect()
  try {
    return (await client.query(statement)).rows[0].n
  } finally {
    await client.end()
  }
}

const portOf = (url: string): number => Number(new URL(url).port)

function at(url: string, port: number): string {
  const moved = new URL(url)
  moved.port = String(port)
  return moved.href
}
