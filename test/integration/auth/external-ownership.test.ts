import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import type { ExternalProfile } from '#api/auth/ports.ts'

import { fakeProviders, visitor } from './support/fake-provider.ts'
import { whileWaiting } from './support/held-user.ts'
import { createUser, newEmail, PASSWORD, signedInUser } from './support/people.ts'
import { type CallResult, startServer, type TestServer } from './support/server.ts'

const providers = fakeProviders()
let server: TestServer

beforeAll(async () => {
  server = await startServer({
    providers,
    env: { AUTH_SMTP_MAX_FREQUENCY: '0', AUTH_SECURITY_MANUAL_LINKING_ENABLED: 'true' },
  })
})

afterAll(() => server.close())

const arrive = (profile: ExternalProfile): Promise<CallResult> => {
  providers.visitors.set('token', profile)
  const body = { provider: 'google', id_token: 'token' }
  return server.call({ method: 'POST', path: '/token?grant_type=id_token', body })
}

it.each([
  ['somebody new', async () => newEmail()],
  ['somebody with an account', async () => (await createUser(server)).email],
])('%s who arrives several times at once is one user', async (name, findEmail) => {
  const profile = visitor(`twice: ${name}`, await findEmail())
  const answers = await Promise.all(Array.from({ length: 5 }, () => arrive(profile)))
  expect(answers.map(({ status, body }) => body.msg ?? status)).toEqual([200, 200, 200, 200, 200])
  expect(new Set(answers.map(({ body }) => body.user.id)).size).toBe(1)
})

it('a banned user gets neither an identity nor an entry of a sign-in', async () => {
  const { id, email } = await createUser(server, { ban_duration: '1h' })
  expect((await arrive(visitor('g-banned', email))).body.error_code).toBe('user_banned')
  const bearer = await server.serviceToken()
  const { body } = await server.call({ path: `/admin/users/${id}`, bearer })
  expect(body.identities.map((one: { provider: string }) => one.provider)).toEqual(['email'])
  const { rows } = await server.database.pool.query(
    `select payload ->> 'action' as action from audit_log_entries
     where payload ->> 'actor_id' = $1`,
    [id],
  )
  expect(rows).toEqual([])
})

it('a user who changed the address before the lock gets no identity of its new owner', async () => {
  const { id, email } = await createUser(server)
  const { body } = await whileWaiting(server, id, {
    request: () => arrive(visitor('g-moved', email)),
    change: (client) =>
      client.query(
        `with moved as (update users set email = 'moved@example.com' where id = '${id}')
         delete from identities where user_id = '${id}'`,
      ),
  })
  expect(body.user).toMatchObject({ email, identities: [{ provider: 'google' }] })
  expect(body.user.id).not.toBe(id)
})

it('an invitation that a visitor accepts with a provider is used up', async () => {
  const email = newEmail()
  const invite = { method: 'POST', path: '/invite', body: { email } } as const
  const phone = `4179${Date.now() % 10_000_000}`
  const { id } = await createUser(server, { email: undefined, phone, phone_confirm: true })
  await server.database.pool.query('update users set email = $2 where id = $1', [id, email])
  await server.call({ ...invite, bearer: await server.serviceToken() })
  const token = server.lastMail(email).variables.tokenHash
  const accept = async (subject: string) => {
    providers.visitors.set('code', visitor(subject, email))
    const path = `/authorize?provider=github&invite_token=${token}`
    const begun = await server.call({ path })
    if (begun.status !== 302) return begun.body.error_code
    const state = new URL(begun.location).searchParams.get('state')
    const { location } = await server.call({ path: `/callback?code=code&state=${state}` })
    return new URLSearchParams(new URL(location).hash.slice(1)).get('error_code')
  }
  expect(await accept('gh-invited')).toBe(null)
  expect(await accept('gh-again')).toBe('user_not_found')
})

it('an identity is not linked to a user who was banned during the flow', async () => {
  const { access_token: bearer, user } = await signedInUser(server)
  const path = `/user/identities/authorize?provider=github&skip_http_redirect=true&code_challenge=${'c'.repeat(43)}&code_challenge_method=plain`
  const { body } = await server.call({ path, bearer })
  await server.call({
    method: 'PUT',
    path: `/admin/users/${user.id}`,
    bearer: await server.serviceToken(),
    body: { ban_duration: '1h' },
  })
  providers.visitors.set('code', visitor('gh-1', newEmail()))
  const state = new URL(body.url).searchParams.get('state')
  const { location } = await server.call({ path: `/callback?code=code&state=${state}` })
  const exchanged = await server.call({
    method: 'POST',
    path: '/token?grant_type=pkce',
    body: { auth_code: new URL(location).searchParams.get('code'), code_verifier: 'c'.repeat(43) },
  })
  expect(exchanged.body.error_code).toBe('user_banned')
})

it('an account that was created in advance keeps no data of its creator', async () => {
  const env = {
    AUTH_MAILER_ALLOW_UNVERIFIED_EMAIL_SIGN_INS: 'true',
    AUTH_EXTERNAL_PHONE_ENABLED: 'true',
    AUTH_SMS_AUTOCONFIRM: 'true',
  }
  const lax = await startServer({ providers, env })
  const credentials = { email: newEmail('victim'), password: PASSWORD }
  const visit = { provider: 'google', id_token: 'attacker' }
  providers.visitors.set(
    'attacker',
    visitor('g-attacker', credentials.email, { isVerified: false }),
  )
  const attacker = await lax.call({
    method: 'POST',
    path: '/token?grant_type=id_token',
    body: visit,
  })
  const password = {
    method: 'POST',
    path: '/token?grant_type=password',
    body: credentials,
  } as const
  const bearer = attacker.body.access_token
  const planted = { password: PASSWORD }
  const { status } = await lax.call({ method: 'PUT', path: '/user', bearer, body: planted })
  expect(status).toBe(200)
  const factor = { factor_type: 'totp' }
  await lax.call({ method: 'PUT', path: '/user', bearer, body: { phone: '+41791234567' } })
  await lax.call({ method: 'POST', path: '/factors', bearer, body: factor })
  providers.visitors.set('owner', visitor('g-owner', credentials.email))
  const body = { provider: 'google', id_token: 'owner' }
  const owner = await lax.call({ method: 'POST', path: '/token?grant_type=id_token', body })
  expect(owner.body.user).toMatchObject({ phone: '', identities: [{ provider: 'google' }] })
  expect(owner.body.user).not.toHaveProperty('factors')
  expect((await lax.call({ path: '/user', bearer })).status).toBe(403)
  expect((await lax.call(password)).status).toBe(400)
  await lax.close()
})

it('an invitation voids the change of address that another person has begun', async () => {
  const lax = await startServer({
    providers,
    env: {
      AUTH_MAILER_ALLOW_UNVERIFIED_EMAIL_SIGN_INS: 'true',
      AUTH_SMTP_MAX_FREQUENCY: '0',
      AUTH_MAILER_SECURE_EMAIL_CHANGE_ENABLED: 'false',
    },
  })
  const [email, own] = [newEmail('victim'), newEmail('attacker')]
  providers.visitors.set('early', visitor('g-early', email, { isVerified: false }))
  const visit = { provider: 'google', id_token: 'early' }
  const post = (path: string, body: object, bearer?: string) =>
    lax.call({ method: 'POST', path, body, ...(bearer !== undefined && { bearer }) })
  const attacker = await post('/token?grant_type=id_token', visit)
  const bearer = attacker.body.access_token
  await lax.call({ method: 'PUT', path: '/user', bearer, body: { email: own } })
  const { variables } = lax.lastMail(own)
  const invited = await post('/invite', { email }, await lax.serviceToken())
  expect(invited.body.id).toBe(attacker.body.user.id)
  const taken = await post('/verify', { type: 'email_change', token_hash: variables.tokenHash })
  expect(taken.body.error_code).toBe('otp_expired')
  await lax.close()
})

it("an unverified address does not open another user's account, even if new addresses need no confirmation", async () => {
  const lax = await startServer({ providers, env: { AUTH_MAILER_AUTOCONFIRM: 'true' } })
  const { email } = await createUser(lax)
  const visit = async (isVerified: boolean) => {
    providers.visitors.set('claim', visitor(`g-claim-${isVerified}`, email, { isVerified }))
    const body = { provider: 'google', id_token: 'claim' }
    return lax.call({ method: 'POST', path: '/token?grant_type=id_token', body })
  }
  expect((await visit(false)).body.error_code).toBe('provider_email_needs_verification')
  expect((await visit(true)).body.user).toMatchObject({ email })
  providers.visitors.set('new', visitor('g-new', newEmail(), { isVerified: false }))
  const body = { provider: 'google', id_token: 'new' }
  expect(
    (await lax.call({ method: 'POST', path: '/token?grant_type=id_token', body })).status,
  ).toBe(200)
  await lax.close()
})

describe('an unconfirmed address', () => {
  const unverified = { isVerified: false }

  it('admits no user once the provider no longer names it', async () => {
    const email = newEmail('victim')
    const refusal = { code: 422, error_code: 'provider_email_needs_verification' }
    expect((await arrive(visitor('g-1', email, unverified))).body).toMatchObject(refusal)
    expect((await arrive(visitor('g-1', undefined))).body).toMatchObject(refusal)
    const { email: taken } = await createUser(server)
    expect((await arrive(visitor('g-1', taken))).body).toMatchObject(refusal)
    expect((await arrive(visitor('g-1', newEmail(), unverified))).body).toMatchObject(refusal)
  })

  it('yields to the verified address that the visitor has by then', async () => {
    const [email, own] = [newEmail('victim'), newEmail('own')]
    await arrive(visitor('g-2', email, unverified))
    const { user } = (await arrive(visitor('g-2', own))).body
    expect(user).toMatchObject({ email: own, email_confirmed_at: expect.any(String) })
    const { body } = await arrive(visitor('g-3', email))
    expect(body.user.email).toBe(email)
    expect(body.user.id).not.toBe(user.id)
  })
})
