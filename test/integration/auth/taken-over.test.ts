import { TOTP } from 'otpauth'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { sendInvitation } from '#api/auth/admin/send-invitation.ts'
import type { AuthRequest } from '#api/auth/context.ts'
import { endMemberships } from '#api/organizations/account-deletion.ts'
import { openApiKeys } from '#shared/db/api-keys.ts'
import { membershipsOf } from '#shared/db/organizations.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'

import { fakeProviders, visitor } from './support/fake-provider.ts'
import { whileWaiting } from './support/held-user.ts'
import { createUser, newEmail, PASSWORD, signedInUser, signIn } from './support/people.ts'
import { type CallResult, startServer, type TestServer } from './support/server.ts'

const providers = fakeProviders()
const tables = organizationTables('')
let server: TestServer

beforeAll(async () => {
  server = await startServer({
    providers,
    onUsersEnded: (tx, userIds) => endMemberships(tx, tables, userIds),
    env: {
      AUTH_SMTP_MAX_FREQUENCY: '0',
      AUTH_SMS_MAX_FREQUENCY: '0',
      AUTH_EXTERNAL_PHONE_ENABLED: 'true',
      AUTH_MAILER_ALLOW_UNVERIFIED_EMAIL_SIGN_INS: 'true',
    },
  })
})

afterAll(() => server.close())

let numbers = 0

function newPhone(): string {
  numbers += 1
  return `49151777${String(numbers).padStart(5, '0')}`
}

const put = (bearer: string, body: object): Promise<CallResult> =>
  server.call({ method: 'PUT', path: '/user', bearer, body })
const post = (path: string, body: object, bearer?: string): Promise<CallResult> =>
  server.call({ method: 'POST', path, body, ...(bearer !== undefined && { bearer }) })
const lastCode = (): string => server.messages.at(-1)?.otp ?? ''

async function addFactor(bearer: string): Promise<CallResult> {
  const { body } = await post('/factors', { factor_type: 'totp' }, bearer)
  const challenge = await post(`/factors/${body.id}/challenge`, {}, bearer)
  const code = new TOTP({ secret: body.totp.secret }).generate()
  const proof = { challenge_id: challenge.body.id, code }
  return post(`/factors/${body.id}/verify`, proof, bearer)
}

describe('a change of contact that a session began', () => {
  const defences: [string, (owner: string) => Promise<CallResult>][] = [
    ['another session changes the password', (owner) => put(owner, { password: 'a new password' })],
    ['another session signs the others out', (owner) => post('/logout?scope=others', {}, owner)],
    ['another session signs all out', (owner) => post('/logout', {}, owner)],
    ['another session adds the first second factor', addFactor],
  ]
  it.each(defences)('is withdrawn when %s', async (_name, defend) => {
    const { email } = await createUser(server)
    const [thief, owner] = [await signIn(server, email), await signIn(server, email)]
    const phone = newPhone()
    expect((await put(thief.access_token, { phone })).status).toBe(200)
    const token = lastCode()
    expect((await defend(owner.access_token)).status).toBeLessThan(300)
    const redeemed = await post('/verify', { type: 'phone_change', phone, token })
    expect(redeemed.body).toMatchObject({ error_code: 'otp_expired' })
    // No session is needed to ask for another code.
    const sent = server.messages.length
    await post('/resend', { type: 'phone_change', email })
    expect(server.messages.length).toBe(sent)
    const { body } = await server.call({
      path: `/admin/users/${owner.user.id}`,
      bearer: await server.serviceToken(),
    })
    expect(body).toMatchObject({ phone: '' })
    expect(body).not.toHaveProperty('new_phone')
  })

  it('is withdrawn if its request holds the user when the sessions end', async () => {
    const { access_token: bearer, user } = await signedInUser(server)
    const ended = await whileWaiting(server, user.id, {
      request: () => post('/logout', {}, bearer),
      change: (thief) =>
        thief.query(`update users set phone_change = '${newPhone()}' where id = '${user.id}'`),
    })
    expect(ended.status).toBe(204)
    const { rows } = await server.database.pool.query(
      `select phone_change from users where id = '${user.id}'`,
    )
    expect(rows).toEqual([{ phone_change: null }])
  })

  it('continues if the present address must agree as well', async () => {
    const { access_token: bearer, user } = await signedInUser(server)
    const email = newEmail()
    expect((await put(bearer, { email })).status).toBe(200)
    const [present, next] = [user.email, email].map((to) => server.lastMail(to).variables.token)
    await post('/logout', {}, bearer)
    const first = await post('/verify', { type: 'email_change', email: user.email, token: present })
    expect(first.status).toBe(200)
    const second = await post('/verify', { type: 'email_change', email, token: next })
    expect(second.body.user).toMatchObject({ email })
  })

  it('continues if only its own session signs out', async () => {
    const { access_token: bearer } = await signedInUser(server)
    const phone = newPhone()
    await put(bearer, { phone })
    const token = lastCode()
    await post('/logout?scope=local', {}, bearer)
    expect((await post('/verify', { type: 'phone_change', phone, token })).status).toBe(200)
  })
})

it('a recovery code sets no first password for a user with a second factor', async () => {
  const email = newEmail()
  providers.visitors.set('code', visitor('gh-factor', email))
  const { location } = await server.call({ path: '/authorize?provider=github' })
  const state = new URL(location).searchParams.get('state')
  const back = await server.call({ path: `/callback?code=code&state=${state}` })
  const bearer = new URLSearchParams(new URL(back.location).hash.slice(1)).get('access_token')
  expect((await addFactor(bearer ?? '')).status).toBe(200)
  await post('/recover', { email })
  const { token } = server.lastMail(email).variables
  const planted = await post('/verify', { type: 'recovery', email, token, password: PASSWORD })
  expect(planted.body).toMatchObject({ code: 403, error_code: 'insufficient_aal' })
  expect((await post('/token?grant_type=password', { email, password: PASSWORD })).status).toBe(400)
  // The code is not used up, and signs in at the first level.
  expect((await post('/verify', { type: 'recovery', email, token })).status).toBe(200)
})

it('a banned user changes nothing with an access token that has not expired', async () => {
  const { access_token: bearer, user } = await signedInUser(server)
  const { body: factor } = await post('/factors', { factor_type: 'totp' }, bearer)
  const ban = { ban_duration: '1h' }
  const path = `/admin/users/${user.id}`
  await server.call({ method: 'PUT', path, bearer: await server.serviceToken(), body: ban })
  const answers = await Promise.all([
    server.call({ path: '/user', bearer }),
    put(bearer, { password: 'kept for later' }),
    put(bearer, { email: newEmail() }),
    post('/factors', { factor_type: 'totp', friendly_name: 'b' }, bearer),
    post(`/factors/${factor.id}/challenge`, {}, bearer),
    post('/logout?scope=others', {}, bearer),
    server.call({ path: '/user/identities/authorize?provider=github', bearer }),
  ])
  for (const { body } of answers) {
    expect(body).toMatchObject({ code: 403, error_code: 'user_banned' })
  }
})

describe('an address that another audience signed up first', () => {
  it.each(['/signup', '/otp'])('gets the audience of its owner by %s', async (path) => {
    const email = newEmail()
    const squatter = { email, password: 'planted password' }
    const headers = { 'x-jwt-aud': 'elsewhere' }
    await server.call({ method: 'POST', path: '/signup', body: squatter, headers })
    expect((await post(path, { email, password: PASSWORD })).status).toBe(200)
    const { token } = server.lastMail(email).variables
    const { body } = await post('/verify', { type: 'email', email, token })
    expect(body.user).toMatchObject({ email, aud: 'authenticated' })
  })

  it('stays with its user once it is confirmed', async () => {
    const { email, id } = await createUser(server)
    const headers = { 'x-jwt-aud': 'elsewhere' }
    for (const path of ['/signup', '/otp']) {
      const body = { email, password: 'planted password' }
      await server.call({ method: 'POST', path, body, headers })
    }
    const bearer = await server.serviceToken()
    expect((await server.call({ path: `/admin/users/${id}`, bearer })).body.aud).toBe(
      'authenticated',
    )
  })
})

it('keeps the metadata of an account that an administrator made, when its owner is invited', async () => {
  const bearer = await server.serviceToken()
  const email = newEmail('made')
  await post('/admin/users', { email, user_metadata: { team: 'red' } }, bearer)
  const { body } = await post('/invite', { email, data: { seat: 4 } }, bearer)
  expect(body.user_metadata).toMatchObject({ team: 'red', seat: 4 })
})

describe('the key of a user who never proved the address', () => {
  const arrivals: [string, (email: string) => Promise<unknown>][] = [
    ['a code', confirmByCode],
    ['a provider that verified it', (email) => arrive(visitor('gh-owner', email))],
    ['an invitation', invite],
  ]
  /** A user without proof of the address, whose organization has one key. */
  const plantKey = async (email: string) => {
    const thief = await arrive(visitor(`gh-${email}`, email, { isVerified: false }))
    const { db } = server.database
    const organizationOf = async () => (await membershipsOf(db, tables, thief))[0]?.id ?? ''
    const keys = openApiKeys(db, tables)
    const organizationId = await organizationOf()
    const fields = { scopes: null, modelIds: null, expiresAt: null, createdBy: thief }
    await keys.create({ organizationId, name: 'planted', ...fields })
    return { organizationId, organizationOf, listKeys: () => keys.list(organizationId) }
  }

  it.each(arrivals)('is revoked when the owner comes by %s', async (_name, comes) => {
    const email = newEmail('victim')
    const { organizationId, organizationOf, listKeys } = await plantKey(email)
    expect(await listKeys()).toHaveLength(1)
    await comes(email)
    expect(await listKeys()).toEqual([])
    expect(await organizationOf()).not.toBe(organizationId)
  })

  it('is revoked by the link of an invitation to an organization, not by the invitation', async () => {
    const email = newEmail('victim')
    const { organizationId, organizationOf, listKeys } = await plantKey(email)
    const sessions = `select s.id from sessions s join users u on u.id = user_id where email = $1`
    await sendInvitation(server.services, INVITING, { email, inviterId: undefined, data: {} })
    expect(await organizationOf()).toBe(organizationId)
    expect(await listKeys()).toHaveLength(1)
    expect((await server.database.pool.query(sessions, [email])).rows).toHaveLength(1)
    await server.services.outbox.idle()
    const token_hash = server.lastMail(email).variables.tokenHash
    expect((await post('/verify', { type: 'invite', token_hash })).status).toBe(200)
    expect(await listKeys()).toEqual([])
  })
})

/** The request of a user who invites another user to an organization. */
const INVITING: AuthRequest = {
  ip: '192.0.2.1',
  network: '192.0.2.1',
  requestId: 'req',
  userAgent: '',
  redirectTo: 'http://localhost:3000',
  audience: 'authenticated',
  externalUrl: 'http://localhost:9999',
  browser: { secret: undefined, isNavigation: false, host: '' },
}

/** Signs in by a provider; returns the id of the user. */
async function arrive(profile: ReturnType<typeof visitor>): Promise<string> {
  providers.visitors.set('code', profile)
  const { location } = await server.call({ path: '/authorize?provider=github' })
  const state = new URL(location).searchParams.get('state')
  const back = await server.call({ path: `/callback?code=code&state=${state}` })
  const bearer = new URLSearchParams(new URL(back.location).hash.slice(1)).get('access_token') ?? ''
  const { body, status } = await server.call({ path: '/user', bearer })
  expect(status).toBe(200)
  return body.id
}

async function confirmByCode(email: string): Promise<void> {
  await post('/otp', { email })
  const { token } = server.lastMail(email).variables
  expect((await post('/verify', { type: 'email', email, token })).status).toBe(200)
}

async function invite(email: string): Promise<void> {
  expect((await post('/invite', { email }, await server.serviceToken())).status).toBe(200)
}
