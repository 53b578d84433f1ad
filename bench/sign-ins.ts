import { argon2, randomBytes } from 'node:crypto'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

import { hashRaw } from '@node-rs/argon2'

import { spawnReady } from '#test/support/queue.ts'
import type { Tiers } from '#test/support/tiers.ts'

import type { Figure } from './figure.ts'
import { alternate } from './rounds.ts'
import { type Client, openClient, ratePerSecond, signUp } from './support/people.ts'
import { openShippedTiers } from './support/service.ts'

const PASSWORD = 'correct horse'
const CONCURRENCY = 16
const SIGN_INS_EACH = 10
const REFRESHES_EACH = 60
const COMPLETIONS = 120

/**
 * The user server as its users meet it: sign-ins against the bare hash, refreshes against a bare
 * route with one transaction, and what completions notice of a storm of sign-ins.
 */
export async function benchSignIns(): Promise<readonly Figure[]> {
  const { tiers, databaseUrl, close } = await openShippedTiers({
    AUTH_MAILER_AUTOCONFIRM: 'true',
    MILLRACE_SESSION_REFRESHES_PER_HOUR: '0',
    MILLRACE_USER_CHANGES_PER_HOUR: '0',
  })
  const client = openClient(tiers.url)
  try {
    const people = Array.from({ length: CONCURRENCY }, (_, index) => `user${index}@example.test`)
    return [
      ...(await compareSignIns(client, people)),
      await compareRefreshes(client, people, databaseUrl),
      await compareCompletions(tiers, client, people),
    ]
  } finally {
    client.close()
    await close()
  }
}

async function compareSignIns(client: Client, people: readonly string[]): Promise<Figure[]> {
  for (const email of people) await signUp(client, { email, password: PASSWORD })
  const signIns = () =>
    ratePerSecond(CONCURRENCY, SIGN_INS_EACH, (index) => signIn(client, people[index] as string))
  // One client per core: more would only wait for each other.
  const hashes = (hash: () => Promise<unknown>) => () =>
    ratePerSecond(availableParallelism(), 60, async () => {
      await hash()
    })
  const ofLibrary = await alternate(signIns, hashes(hashOnce))
  const ofNode = await alternate(signIns, hashes(hashOnceInNode))
  const name = 'password sign-ins through HTTP and Postgres ÷ argon2id'
  return [
    {
      name: `${name} of the same library alone`,
      unit: '/s',
      ...ofLibrary,
      target: { atLeast: 0.9 },
    },
    { name: `${name} of Node alone`, unit: '/s', ...ofNode, target: { atLeast: 0.9 } },
  ]
}

async function signIn(client: Client, email: string): Promise<void> {
  const body = { email, password: PASSWORD }
  const { status } = await client.post('/token?grant_type=password', body)
  if (status !== 200) throw new Error(`a sign-in failed: ${status}`)
}

// The default costs of the configuration, for both.
const KIB = 19_456
const PASSES = 2

async function hashOnce(): Promise<Uint8Array> {
  const costs = { memoryCost: KIB, timeCost: PASSES, parallelism: 1, outputLen: 32 }
  return hashRaw(PASSWORD, { salt: randomBytes(16), ...costs })
}

const computeInNode = promisify(argon2)

async function hashOnceInNode(): Promise<Uint8Array> {
  const costs = { memory: KIB, passes: PASSES, parallelism: 1, tagLength: 32 }
  return computeInNode('argon2id', { message: PASSWORD, nonce: randomBytes(16), ...costs })
}

async function compareRefreshes(
  client: Client,
  people: readonly string[],
  databaseUrl: string,
): Promise<Figure> {
  const tokens = await Promise.all(people.map((email) => signUpAgain(client, email)))
  const script = join(import.meta.dirname, 'support/bare-route.ts')
  const bare = await spawnReady(script, [databaseUrl])
  const other = openClient(bare.workerId)
  try {
    const rates = await alternate(
      () =>
        ratePerSecond(CONCURRENCY, REFRESHES_EACH, async (index) => {
          const { status, body } = await client.post('/token?grant_type=refresh_token', {
            refresh_token: tokens[index],
          })
          if (status !== 200) throw new Error(`a refresh failed: ${JSON.stringify(body)}`)
          tokens[index] = String(body.refresh_token)
        }),
      () =>
        ratePerSecond(CONCURRENCY, REFRESHES_EACH, async (index) => {
          await other.post('/touch', { id: index + 1 })
        }),
    )
    const name = 'refreshes ÷ a bare Fastify route with one transaction'
    return { name, unit: '/s', ...rates, target: { atLeast: 0.25 } }
  } finally {
    other.close()
    bare.kill('SIGKILL')
  }
}

async function signUpAgain(client: Client, email: string): Promise<string> {
  return signUp(client, { email: `again.${email}`, password: PASSWORD })
}

async function compareCompletions(
  tiers: Tiers,
  client: Client,
  people: readonly string[],
): Promise<Figure> {
  await tiers.startWorker()
  const calm = () => p99OfCompletions(tiers)
  const storm = async () => {
    let isOver = false
    const tasks = people.map(async (email) => {
      while (!isOver) await signIn(client, email)
    })
    try {
      return await p99OfCompletions(tiers)
    } finally {
      isOver = true
      await Promise.all(tasks)
    }
  }
  const found = await alternate(storm, calm)
  const name = 'p99 of a completion during a storm of sign-ins ÷ without one'
  return { name, unit: 'ms', ...found, target: { atMost: 1.1 } }
}

async function p99OfCompletions({ url, apiKey }: Tiers): Promise<number> {
  const durations: number[] = []
  for (let turn = 0; turn < COMPLETIONS; turn += 1) {
    const startedAt = performance.now()
    const response = await fetch(`${url}/v1/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'tiny-chat', prompt: 'The sun', max_tokens: 16, seed: turn }),
    })
    await response.text()
    if (!response.ok) throw new Error(`a completion failed: ${response.status}`)
    durations.push(performance.now() - startedAt)
  }
  return durations.sort((a, b) => a - b)[Math.floor(durations.length * 0.99)] ?? Number.NaN
}
