import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { createUser, newEmail, PASSWORD } from './support/people.ts'
import { type CallResult, startServer, type TestServer } from './support/server.ts'
import { watchStatements } from './support/statements.ts'

let server: TestServer
let messages = 0
let hashes = 0

beforeAll(async () => {
  server = await startServer({ env: { AUTH_SMTP_MAX_FREQUENCY: '0s' } })
  watchStatements(server.database, (text) => {
    if (/^insert into "outbox_messages"/.test(text)) messages += 1
  })
  watchHashes(server)
})
afterAll(() => server.close())

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
  /** Rows of the outbox, each of which the answer waits for. */
  readonly messages: number
  readonly hashes: number
}

async function costOf(ask: () => Promise<CallResult>): Promise<Cost> {
  ;[messages, hashes] = [0, 0]
  const { status } = await ask()
  return { status, messages, hashes }
}

const post = (path: string, body: object): Promise<CallResult> =>
  server.call({ method: 'POST', path, body })

async function unconfirmed(): Promise<string> {
  const email = newEmail()
  await post('/signup', { email, password: PASSWORD })
  return email
}

const challenge = { code_challenge: 'a'.repeat(43), code_challenge_method: 'plain' }

describe('one request waits for the same hashes and messages', () => {
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
      expect(known.messages).toBe(status === 200 ? 1 : 0)
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

  it('and a request about no user leaves no user and no message behind', async () => {
    const { email } = await createUser(server)
    const [mails, events] = [server.mails.length, server.events.length]
    await post('/signup', { email, password: PASSWORD })
    await post('/recover', { email: newEmail() })
    const { rows } = await server.database.pool.query(
      'select count(*)::int as n from outbox_messages',
    )
    expect(rows).toEqual([{ n: 0 }])
    expect(server.mails).toHaveLength(mails)
    expect(server.events.slice(events)).toEqual(['user_repeated_signup'])
  })
})
