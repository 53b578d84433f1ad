import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { startPostgres } from '#launcher/embedded/postgres.ts'
import { startRedis } from '#launcher/embedded/redis.ts'
import { startMailCatcher } from '#test/support/mail-catcher.ts'
import { startTiers } from '#test/support/tiers.ts'

import type { Figure } from './figure.ts'
import { type Client, openClient } from './support/people.ts'

const PASSWORD = 'correct horse'
const TRIES = 1000
const WARM_UP = 40
const KNOWN = 50
/** Of Welch's t; noise alone goes beyond it in one measurement of a thousand. */
const T_MAX = 3.3

/** Requests about a known and about an unknown address. */
interface Question {
  readonly name: string
  readonly path: string
  body(email: string): object
}

const QUESTIONS: readonly Question[] = [
  {
    name: 'a password',
    path: '/token?grant_type=password',
    body: (email) => ({ email, password: 'not the password' }),
  },
  { name: 'a recovery', path: '/recover', body: (email) => ({ email }) },
  { name: 'a one-time code', path: '/otp', body: (email) => ({ email }) },
  { name: 'a sign-up', path: '/signup', body: (email) => ({ email, password: PASSWORD }) },
]

/**
 * The difference between the mean times of answers about known and about unknown addresses over
 * 1,000 interleaved tries, against the difference that noise alone makes (Welch's t).
 */
export async function benchEqualAnswers(tries = TRIES): Promise<readonly Figure[]> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
  const mail = await startMailCatcher()
  const redis = await startRedis(folder, { password: 'bench', onProgress: console.error })
  const postgres = await startPostgres(folder, { password: 'bench' })
  const common = { databaseUrl: postgres.url, redisUrl: redis.url, keyPrefix: 'bench', folder }
  const env = {
    AUTH_SMTP_PORT: String(mail.port),
    AUTH_SMTP_MAX_FREQUENCY: '0s',
    AUTH_RATE_LIMIT_EMAIL_SENT: '1000000',
  }
  // The people of the first server have confirmed their addresses; the second asks for that.
  const first = await startTiers({ ...common, env: { ...env, AUTH_MAILER_AUTOCONFIRM: 'true' } })
  const second = await startTiers({ ...common, env })
  const clients = [openClient(first.url), openClient(second.url)] as const
  try {
    for (const email of knownPeople()) {
      await clients[0].post('/signup', { email, password: PASSWORD })
    }
    const figures: Figure[] = []
    for (const question of QUESTIONS) figures.push(await compare(clients[1], question, tries))
    return figures
  } finally {
    for (const client of clients) client.close()
    await Promise.all([first.stop(), second.stop()])
    await Promise.all([redis.stop(), postgres.stop(), mail.stop()])
    await rm(folder, { recursive: true, force: true })
  }
}

const knownPeople = (): string[] =>
  Array.from({ length: KNOWN }, (_, index) => `known${index}@example.test`)

async function compare(client: Client, question: Question, tries: number): Promise<Figure> {
  const known: number[] = []
  const unknown: number[] = []
  const people = knownPeople()
  for (let turn = 0; turn < tries + WARM_UP; turn += 1) {
    // A coin decides which of each pair comes first.
    const isKnown = turn % 2 === 0 ? Math.random() < 0.5 : known.length < unknown.length
    const email = isKnown
      ? (people[turn % KNOWN] as string)
      : `${turn}.${question.path.length}.${Math.random()}@example.test`
    const ms = await timeOf(client, question, email)
    ;(isKnown ? known : unknown).push(ms)
  }
  const [a, b] = [momentsOf(known.slice(WARM_UP / 2)), momentsOf(unknown.slice(WARM_UP / 2))]
  const standardError = Math.sqrt(a.variance / a.count + b.variance / b.count)
  return {
    name: `difference of means, known and unknown, of ${question.name} ÷ ${T_MAX} standard errors`,
    unit: 'ms',
    ours: Math.abs(a.mean - b.mean),
    theirs: T_MAX * standardError,
    target: { atMost: 1 },
  }
}

async function timeOf(client: Client, { path, body }: Question, email: string): Promise<number> {
  const startedAt = performance.now()
  const { status } = await client.post(path, body(email))
  if (status >= 429) throw new Error(`${path} answered ${status}`)
  return performance.now() - startedAt
}

function momentsOf(values: readonly number[]): { count: number; mean: number; variance: number } {
  const count = values.length
  const mean = values.reduce((sum, value) => sum + value, 0) / count
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0)
  return { count, mean, variance: squares / (count - 1) }
}
