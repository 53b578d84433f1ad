import type { PoolClient } from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { createUser, newEmail, PASSWORD } from './support/people.ts'
import { startServer, type CallResult, type TestServer } from './support/server.ts'

let server: TestServer
let statements: string[] = []
let hashes = 0

beforeAll(async () => {
  server = await startServer({ env: { AUTH_SMTP_MAX_FREQUENCY: '0s' } })
  watchStatements(server)
  watchHashes(server)
})
afterAll(() => server.close())

// Statements that begin and end a transaction are not counted: a dry run ends with a rollback.
const BRACKET = /^(begin|commit|rollback|savepoint|release)\b/i

function watchStatements({ database }: TestServer): void {
  const watched = new WeakSet<PoolClient>()
  database.pool.on('acquire', (client) => {
    if (watched.has(client)) return
    watched.add(client)
    const query = client.query.bind(client) as (...inputs: unknown[]) => unknown
    client.query = ((...inputs: unknown[]) => {
      const [first] = inputs
      const text = typeof first === 'string' ? first : (first as { text: string }).text
      if (!BRACKET.test(text)) statements.push(text.slice(0, 60))
      return query(...inputs)
    }) as typeof client.query
  })
}

function watchHashes({ services }: TestServer): void {
  const { passwords } = services
  const { hash, verify } = passwords
  passwords.hash = (password) => {
    hashes += 1
    return hash(password)
  }
  passwords.verify = (password, stored) => {
    hashes += 1
    return verify(password, stored)
  }
}

interface Cost {
  readonly status: number
  readonly statements: number
  readonly hashes: number
}

async function costOf(ask: () => Promise<CallResult>): Promise<Cost> {
  ;[statements, hashes] = [[], 0]
  const { status } = await ask()
  return { status, statements: statements.length, hashes }
}

const post = (path: string, body: object): Promise<CallResult> =>
  server.call({ method: 'POST', path, body })

async function unconfirmed(): Promise<string> {
  const email = newEmail()
  await post('/signup', { email, password: PASSWORD })
  return email
}

const challenge = { code_challenge: 'a'.repeat(43), code_challenge_method: 'plain' }

describe('one request costs the same work', () => {
  it.each<[string, (email: string) => [string, object], number]>([
    ['a sign-up', (email) => ['/signup', { email, password: PASSWORD }], 200],
    ['a password', (email) => ['/token?grant_type=password', { email, password: 'wrong!' }], 400],
    ['a recovery', (email) => ['/recover', { email }], 200],
    ['a recovery with PKCE', (email) => ['/recover', { email, ...challenge }], 200],
    ['a one-time code', (email) => ['/otp', { email }], 200],
    ['a magic link', (email) => ['/magiclink', { email }], 200],
  ])(
    '%s for an address that somebody has, and for one that nobody has',
    async (_n, make, status) => {
      const { email } = await createUser(server)
      const known = await costOf(() => post(...make(email)))
      const unknown = await costOf(() => post(...make(newEmail())))
      expect(known).toMatchObject({ status })
      expect(known.statements).toBeGreaterThan(1)
      expect(unknown).toEqual(known)
    },
  )

  it('a sign-up and a repeated confirmation for an address that waits for its own', async () => {
    const [first, second] = [await unconfirmed(), await unconfirmed()]
    const signup = (email: string) => post('/signup', { email, password: PASSWORD })
    expect(await costOf(() => signup(first))).toEqual(await costOf(() => signup(newEmail())))
    const resend = (email: string) => post('/resend', { type: 'signup', email })
    expect(await costOf(() => resend(second))).toEqual(await costOf(() => resend(newEmail())))
  })

  it('and a dry run leaves no user behind', async () => {
    const { email } = await createUser(server)
    const [mails, events] = [server.mails.length, server.events.length]
    await post('/signup', { email, password: PASSWORD })
    await post('/recover', { email: newEmail() })
    const { rows } = await server.database.pool.query(
      "select count(*)::int as n from users where email like '%.invalid'",
    )
    expect(rows).toEqual([{ n: 0 }])
    expect(server.mails).toHaveLength(mails)
    expect(server.events.slice(events)).toEqual(['user_repeated_signup'])
  })
})
