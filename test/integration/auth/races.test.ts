import { hash as bcryptHash } from '@node-rs/bcrypt'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { whileWaiting } from './support/held-user.ts'
import { createUser, newEmail, PASSWORD, refresh, signIn } from './support/people.ts'
import { type CallResult, startServer, type TestServer } from './support/server.ts'

let server: TestServer

beforeAll(async () => {
  server = await startServer({
    env: { AUTH_SMTP_MAX_FREQUENCY: '0', AUTH_PASSKEY_ENABLED: 'true' },
  })
})

afterAll(() => server.close())

const NEW_PASSWORD = 'another horse'

const tryPassword = (email: string, password: string): Promise<CallResult> =>
  server.call({ method: 'POST', path: '/token?grant_type=password', body: { email, password } })

const changePassword = (bearer: string, password: string): Promise<CallResult> =>
  server.call({ method: 'PUT', path: '/user', bearer, body: { password } })

const changeAsAdmin = async (id: string, password: string): Promise<CallResult> =>
  server.call({
    method: 'PUT',
    path: `/admin/users/${id}`,
    bearer: await server.serviceToken(),
    body: { password },
  })

/** Holds the check of a password up until the returned function is called. */
function holdPasswordChecks(): { readonly isWaiting: Promise<void>; release(): void } {
  const { passwords } = server.services
  const { verify } = passwords
  const { promise: released, resolve: release } = Promise.withResolvers<void>()
  const { promise: isWaiting, resolve: waits } = Promise.withResolvers<void>()
  passwords.verify = async (password, hash) => {
    const result = await verify(password, hash)
    passwords.verify = verify
    waits()
    await released
    return result
  }
  return { isWaiting, release }
}

describe('a password that is changed during a sign-in with the old one', () => {
  it('admits them no longer', async () => {
    const { id, email } = await createUser(server)
    const held = holdPasswordChecks()
    const late = tryPassword(email, PASSWORD)
    await held.isWaiting
    expect((await changeAsAdmin(id, NEW_PASSWORD)).status).toBe(200)
    held.release()
    const { status, body } = await late
    expect([status, body.error_code]).toEqual([400, 'invalid_credentials'])
    const { rows } = await server.database.pool.query(
      'select id from sessions where user_id = $1',
      [id],
    )
    expect(rows).toEqual([])
  })

  it('ends all of their sessions, however many try', async () => {
    const { email } = await createUser(server)
    const session = await signIn(server, email)
    // Ten failures are free: the answers to more would be about the limit.
    const tries = Array.from({ length: 9 }, () => tryPassword(email, PASSWORD))
    const [changed, ...answers] = await Promise.all([
      changePassword(session.access_token, NEW_PASSWORD),
      ...tries,
    ])
    expect(changed.status).toBe(200)
    const { rows } = await server.database.pool.query(
      'select s.id from sessions s join users u on u.id = s.user_id where u.email = $1',
      [email],
    )
    expect(rows).toHaveLength(1)
    for (const { status, body } of answers) {
      if (status === 200) expect((await refresh(server, body.refresh_token)).status).toBe(400)
      else expect([status, body.error_code]).toEqual([400, 'invalid_credentials'])
    }
  })

  it('stays the new one when the hash of the old one was about to be renewed', async () => {
    const email = newEmail()
    const password_hash = await bcryptHash(PASSWORD, 4)
    const { id } = await createUser(server, { email, password: undefined, password_hash })
    const held = holdPasswordChecks()
    const late = tryPassword(email, PASSWORD)
    await held.isWaiting
    expect((await changeAsAdmin(id, NEW_PASSWORD)).status).toBe(200)
    held.release()
    expect((await late).body.error_code).toBe('invalid_credentials')
    expect((await tryPassword(email, PASSWORD)).status).toBe(400)
    expect((await tryPassword(email, NEW_PASSWORD)).status).toBe(200)
  })
})

describe('an imported user who signs in several times at once', () => {
  it('gets in every time', async () => {
    const email = newEmail()
    const password_hash = await bcryptHash(PASSWORD, 4)
    await createUser(server, { email, password: undefined, password_hash })
    const answers = await Promise.all(Array.from({ length: 8 }, () => tryPassword(email, PASSWORD)))
    expect(answers.map(({ status }) => status)).toEqual(Array.from({ length: 8 }, () => 200))
  })
})

describe('a password that two sessions change at once', () => {
  it('is changed by one of them; the other has ended by then', async () => {
    const { email } = await createUser(server)
    const [one, other] = [await signIn(server, email), await signIn(server, email)]
    const answers = await Promise.all([
      changePassword(one.access_token, 'the first horse'),
      changePassword(other.access_token, 'the second horse'),
    ])
    const [refusedBy] = answers.filter(({ status }) => status !== 200)
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1)
    expect([refusedBy?.status, refusedBy?.body.error_code]).toEqual([403, 'session_not_found'])
  })
})

describe('a second factor that is asked for by many at once', () => {
  it('does not block others', async () => {
    const { email } = await createUser(server)
    const { access_token: bearer } = await signIn(server, email)
    const post = (path: string, body: object) => server.call({ method: 'POST', path, bearer, body })
    const factor = await post('/factors', { factor_type: 'totp' })
    const answers = await Promise.all(
      Array.from({ length: 12 }, () => post(`/factors/${factor.body.id}/challenge`, {})),
    )
    expect(answers.map(({ status }) => status)).toEqual(Array.from({ length: 12 }, () => 200))
  })
})

describe('an address that administrators give to several new users at once', () => {
  it('goes to one user, and the others are refused', async () => {
    const [email, bearer] = [newEmail(), await server.serviceToken()]
    const create = () =>
      server.call({ method: 'POST', path: '/admin/users', bearer, body: { email } })
    const answers = await Promise.all(Array.from({ length: 8 }, create))
    const refused = answers.filter(({ status }) => status !== 200)
    expect(refused.map(({ body }) => body.error_code)).toEqual(Array(7).fill('email_exists'))
  })
})

describe('mails without a gap between them', () => {
  it('are sent to all who ask at once', async () => {
    const email = newEmail()
    const bearer = await server.serviceToken()
    const invite = () => server.call({ method: 'POST', path: '/invite', bearer, body: { email } })
    await invite()
    const answers = await Promise.all(Array.from({ length: 12 }, invite))
    expect(answers.map(({ status }) => status)).toEqual(Array.from({ length: 12 }, () => 200))
  })
})

it('a passkey is begun by no user who is deleted at the same moment', async () => {
  const { id, email } = await createUser(server)
  const { access_token: bearer } = await signIn(server, email)
  const { status, body } = await whileWaiting(server, id, {
    request: () =>
      server.call({ method: 'POST', path: '/passkeys/registration/options', bearer, body: {} }),
    change: (client) => client.query('delete from users where id = $1', [id]),
  })
  expect([status, body.error_code]).toEqual([403, 'user_not_found'])
})

it('an invitation takes nothing from a user who confirms the address meanwhile', async () => {
  const email = newEmail()
  await server.call({ method: 'POST', path: '/signup', body: { email, password: PASSWORD } })
  const { rows } = await server.database.pool.query('select id from users where email = $1', [
    email,
  ])
  const bearer = await server.serviceToken()
  const { body } = await whileWaiting(server, rows[0].id, {
    request: () => server.call({ method: 'POST', path: '/invite', bearer, body: { email } }),
    change: (client) =>
      client.query(
        `update users u set email_confirmed_at = now(), password_hash = t.password_hash
         from one_time_tokens t where t.user_id = u.id and u.email = $1`,
        [email],
      ),
  })
  expect(body.error_code).toBe('email_exists')
  expect((await tryPassword(email, PASSWORD)).status).toBe(200)
})
