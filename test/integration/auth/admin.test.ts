import { randomUUID } from 'node:crypto'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { createUser, newEmail, PASSWORD, signIn } from './support/people.ts'
import { type CallResult, startServer, type TestServer } from './support/server.ts'

let server: TestServer
let bearer: string

beforeAll(async () => {
  server = await startServer({ env: { AUTH_DISABLE_SIGNUP: 'true' } })
  bearer = await server.serviceToken()
})

afterAll(() => server.close())

const admin = (
  method: 'GET' | 'POST' | 'PUT' | 'DELETE',
  path: string,
  body?: object,
): Promise<CallResult> =>
  server.call({ method, path: `/admin${path}`, bearer, ...(body && { body }) })

describe('administrators', () => {
  it('make users by both forms, signed up or not', async () => {
    const email = newEmail()
    const { status, body } = await admin('POST', '/users', {
      email,
      phone: '+41790001122',
      password: PASSWORD,
      role: 'editor',
      user_metadata: { a: 1 },
      app_metadata: { plan: 'pro' },
    })
    expect(status).toBe(200)
    expect(body).toMatchObject({
      email,
      phone: '41790001122',
      role: 'editor',
      user_metadata: { a: 1 },
      app_metadata: { plan: 'pro', provider: 'email', providers: ['email', 'phone'] },
    })
    expect(body).not.toHaveProperty('email_confirmed_at')
    expect(body.identities).toHaveLength(2)
    const id = randomUUID()
    const named = await admin('POST', `/users/${id}`, { email: newEmail(), email_confirm: true })
    expect(named.body).toMatchObject({ id, email_confirmed_at: expect.any(String) })
    expect((await admin('POST', '/users', { id, email: newEmail() })).status).toBe(400)
    // The only number that needs no unit.
    const briefly = await admin('POST', '/users', { email: newEmail(), ban_duration: '0' })
    expect(briefly.body).toMatchObject({ banned_until: expect.any(String) })
    expect(server.mails).toEqual([])
  })

  it('receive the reason when a new user is invalid', async () => {
    const { email } = await createUser(server)
    const cases: readonly (readonly [object, object])[] = [
      [{}, { code: 400, msg: 'Cannot create a user without either an email or phone' }],
      [{ email }, { code: 422, error_code: 'email_exists' }],
      [{ email: 'x' }, { code: 400, error_code: 'validation_failed' }],
      [{ email: newEmail(), ban_duration: '1 day' }, { code: 400 }],
      [{ email: newEmail(), ban_duration: '1d' }, { code: 400 }],
      [{ email: newEmail(), ban_duration: '1' }, { code: 400 }],
      [{ email: newEmail(), password: 'a', password_hash: '$2b$x' }, { code: 400 }],
      [{ email: newEmail(), password_hash: 'md5:x' }, { code: 400 }],
      [
        { email: newEmail(), id: 'x' },
        { code: 400, msg: 'ID must be an UUID' },
      ],
    ]
    for (const [body, expected] of cases) {
      expect((await admin('POST', '/users', body)).body).toMatchObject(expected)
    }
  })

  it('change users immediately, and only in the named fields', async () => {
    const user = await createUser(server, { user_metadata: { a: 1, b: 2 } })
    const session = await signIn(server, user.email)
    const email = newEmail('changed')
    const { body } = await admin('PUT', `/users/${user.id}`, {
      email,
      user_metadata: { b: null, c: 3 },
      app_metadata: { plan: 'pro' },
      role: 'editor',
    })
    expect(body).toMatchObject({
      email,
      role: 'editor',
      user_metadata: { a: 1, c: 3 },
      app_metadata: { plan: 'pro', provider: 'email' },
    })
    expect(body.user_metadata).not.toHaveProperty('b')
    expect(body.identities[0].identity_data.email).toBe(email)
    expect((await server.call({ path: '/user', bearer: session.access_token })).status).toBe(200)
    await admin('PUT', `/users/${user.id}`, { password: 'set by somebody' })
    const gone = await server.call({ path: '/user', bearer: session.access_token })
    expect(gone.body.error_code).toBe('session_not_found')
    for (const password of ['x', '']) {
      const weak = await admin('PUT', `/users/${user.id}`, { password })
      expect(weak.body).toMatchObject({ code: 422, error_code: 'weak_password' })
    }
  })

  it('mark a contact as verified in the metadata when they confirm it', async () => {
    const contacts = { email: newEmail(), phone: '+41790005566', user_metadata: { a: 1 } }
    const confirms = { email_confirm: true, phone_confirm: true }
    const verified = { a: 1, email_verified: true, phone_verified: true }
    const created = await admin('POST', '/users', { ...contacts, ...confirms })
    expect(created.body.user_metadata).toEqual(verified)
    const pending = { ...contacts, email: newEmail(), phone: '+41790005577' }
    const { body } = await admin('POST', '/users', pending)
    expect(body.user_metadata).toEqual({ a: 1 })
    const updated = await admin('PUT', `/users/${body.id}`, confirms)
    expect(updated.body.user_metadata).toEqual(verified)
  })

  it('void pending links and codes when they confirm a contact', async () => {
    const confirmations = [{ phone: '+41790003344', phone_confirm: true }, { email_confirm: false }]
    for (const fields of confirmations) {
      const { id, email } = await createUser(server, { email_confirm: false, ...fields })
      await server.call({ method: 'POST', path: '/otp', body: { email } })
      const { token, tokenHash } = server.lastMail(email).variables
      await admin('PUT', `/users/${id}`, { email_confirm: true })
      for (const proof of [{ token_hash: tokenHash }, { email, token }]) {
        const body = { type: 'email', ...proof }
        const answer = await server.call({ method: 'POST', path: '/verify', body })
        expect(answer.body).toMatchObject({ code: 403, error_code: 'otp_expired' })
      }
    }
    server.mails.length = 0
  })

  it('see the users of the requested audience, who sign in for it only', async () => {
    const { email } = await createUser(server, { aud: 'other' })
    const body = { email, password: PASSWORD }
    const signInFor = (audience: string) =>
      server.call({
        method: 'POST',
        path: '/token?grant_type=password',
        body,
        headers: { 'x-jwt-aud': audience },
      })
    expect((await signInFor('third')).body.error_code).toBe('invalid_credentials')
    expect((await signInFor('other')).body.user).toMatchObject({ email, aud: 'other' })
    const emailsOf = async (audience: string): Promise<string[]> => {
      const headers = { 'x-jwt-aud': audience }
      const { body: list } = await server.call({ path: '/admin/users', bearer, headers })
      return list.users.map((user: { email: string }) => user.email)
    }
    expect(await emailsOf('third')).toEqual([])
    expect(await emailsOf('other')).toEqual([email])
    const { body: list } = await admin('GET', '/users')
    expect(list.users.map((user: { email: string }) => user.email)).not.toContain(email)
  })

  it('page through users, newest first', async () => {
    const total = Number((await admin('GET', '/users')).headers['x-total-count'])
    const { body, headers } = await admin('GET', '/users?page=1&per_page=2')
    expect(body.users).toHaveLength(2)
    expect(body.users[0].created_at >= body.users[1].created_at).toBe(true)
    const last = Math.ceil(total / 2)
    expect(headers.link).toBe(
      `</admin/users?page=2&per_page=2>; rel="next", </admin/users?page=${last}&per_page=2>; rel="last"`,
    )
    const filtered = await admin('GET', '/users?per_page=1&sort=created_at+asc&filter=%40&page=')
    const same = 'per_page=1&sort=created_at+asc&filter=%40'
    expect(filtered.headers.link).toContain(`</admin/users?page=2&${same}>; rel="next"`)
    const oldest = await admin('GET', '/users?sort=created_at%20asc&per_page=2&page=')
    expect(oldest.body.users[0].created_at <= oldest.body.users[1].created_at).toBe(true)
    for (const query of ['page=-1', 'per_page=x', 'page=1e3', 'sort=email', 'page=99999999999']) {
      expect((await admin('GET', `/users?${query}`)).status, query).toBe(400)
    }
    const { email } = await createUser(server)
    for (const part of [email.slice(2, -3), email.toUpperCase()]) {
      const found = await admin('GET', `/users?filter=${encodeURIComponent(part)}`)
      expect(found.body.users.map((user: { email: string }) => user.email)).toEqual([email])
    }
  })

  it('find, delete and veil users', async () => {
    expect((await admin('GET', '/users/x')).body).toMatchObject({
      code: 404,
      error_code: 'validation_failed',
      msg: 'user_id must be an UUID',
    })
    expect((await admin('GET', `/users/${randomUUID()}`)).body.error_code).toBe('user_not_found')
    const gone = await createUser(server)
    expect((await admin('DELETE', `/users/${gone.id}`)).body).toEqual({})
    expect((await admin('GET', `/users/${gone.id}`)).status).toBe(404)
    const veiled = await createUser(server, { user_metadata: { name: 'Ada' } })
    await admin('DELETE', `/users/${veiled.id}`, { should_soft_delete: true })
    const { rows } = await server.database.pool.query('select * from users where id = $1', [
      veiled.id,
    ])
    expect(rows[0]).toMatchObject({ deleted_at: expect.any(Date), user_metadata: {} })
    expect(JSON.stringify(rows)).not.toContain(veiled.email)
    expect((await createUser(server, { email: veiled.email })).email).toBe(veiled.email)
  })

  it('make links of six kinds without sending anything', async () => {
    const link = (body: object) => admin('POST', '/generate_link', body)
    const { email } = await createUser(server)
    const email_otp = expect.stringMatching(/^\d{6}$/)
    for (const type of ['magiclink', 'recovery', 'email_change_current', 'email_change_new']) {
      const answer = await link({
        type,
        email,
        new_email: newEmail(),
        redirect_to: 'http://localhost:3000/x',
      })
      expect(answer.body).toMatchObject({ email, verification_type: type, email_otp })
      const url = new URL(answer.body.action_link)
      expect(url.searchParams.get('redirect_to')).toBe('http://localhost:3000/x')
      expect(url.searchParams.get('type')).toBe(type.replace(/_(current|new)$/, ''))
      expect(url.searchParams.get('token')).toBe(answer.body.hashed_token)
    }
    const fresh = newEmail()
    const signup = await link({ type: 'signup', email: fresh, password: PASSWORD, data: { a: 1 } })
    expect(signup.body).toMatchObject({ email: fresh, user_metadata: { a: 1 } })
    const clicked = await server.call({
      path: new URL(signup.body.action_link).pathname + new URL(signup.body.action_link).search,
    })
    expect(clicked.location).toContain('access_token=')
    expect((await signIn(server, fresh)).user.email).toBe(fresh)
    const invite = await link({ type: 'invite', email: newEmail() })
    expect(invite.body).toMatchObject({
      invited_at: expect.any(String),
      redirect_to: 'http://localhost:3000',
    })
    const unknown = await link({ type: 'magiclink', email: newEmail(), password: PASSWORD })
    expect(unknown.body.verification_type).toBe('signup')
    expect((await link({ type: 'recovery', email: newEmail() })).status).toBe(404)
    expect((await link({ type: 'signup', email, password: PASSWORD })).body.error_code).toBe(
      'email_exists',
    )
    expect((await link({ type: 'x', email })).body.msg).toBe(
      'Invalid email action link type requested: x',
    )
    expect(server.mails).toEqual([])
  })

  it('leave an entry in the audit log for each link', async () => {
    const { id, email } = await createUser(server)
    const actions = {
      magiclink: 'user_recovery_requested',
      recovery: 'user_recovery_requested',
      email_change_current: 'user_modified',
      email_change_new: 'user_modified',
    }
    for (const type of Object.keys(actions)) {
      await admin('POST', '/generate_link', { type, email, new_email: newEmail() })
    }
    const [fresh, invited] = [newEmail(), newEmail()]
    await admin('POST', '/generate_link', { type: 'signup', email: fresh, password: PASSWORD })
    await admin('POST', '/generate_link', { type: 'invite', email: invited })
    const { rows } = await server.database.pool.query(
      `select payload ->> 'action' as action, payload -> 'traits' as traits from audit_log_entries
       where payload -> 'traits' ? 'link_type' and payload -> 'traits' ->> 'user_email' = any($1)
       order by created_at, id`,
      [[email, fresh, invited]],
    )
    const found = rows.map(({ action, traits }) => [traits.link_type, action])
    expect(Object.fromEntries(found)).toEqual({
      ...actions,
      signup: 'user_confirmation_requested',
      invite: 'user_invited',
    })
    expect(found).toHaveLength(6)
    expect(rows.filter(({ traits }) => traits.user_id === id)).toHaveLength(4)
  })

  it('cannot make one side of a change of address agree for both', async () => {
    const { email } = await createUser(server)
    const new_email = newEmail()
    const agree = async (type: string) => {
      const { body } = await admin('POST', '/generate_link', { type, email, new_email })
      const answer = { type: 'email_change', token_hash: body.hashed_token }
      return server.call({ method: 'POST', path: '/verify', body: answer })
    }
    for (let times = 0; times < 2; times += 1) {
      const { body } = await agree('email_change_new')
      expect(body).toMatchObject({
        code: '200',
        msg: expect.stringMatching(/^Confirmation link accepted/),
      })
    }
    expect((await agree('email_change_current')).body.user.email).toBe(new_email)
  })

  it('read the audit log', async () => {
    const { email } = await createUser(server)
    await signIn(server, email)
    const { body, headers } = await admin('GET', `/audit?query=author:${email}&per_page=5`)
    expect(Number(headers['x-total-count'])).toBe(1)
    expect(body).toMatchObject([
      {
        id: expect.any(String),
        payload: { action: 'login', log_type: 'account', actor_username: email },
        created_at: expect.any(String),
        ip_address: '127.0.0.1',
      },
    ])
    expect((await admin('GET', '/audit?query=action:user_deleted')).body.length).toBeGreaterThan(0)
    expect((await admin('GET', '/audit?query=nobody:x')).status).toBe(400)
    expect(server.events).toContain('login')
  })

  it('see, rename and remove second factors', async () => {
    const { id, email } = await createUser(server)
    const { access_token } = await signIn(server, email)
    const body = { factor_type: 'totp', friendly_name: 'a' }
    const enroll = { method: 'POST', path: '/factors', bearer: access_token } as const
    const enrolled = await server.call({ ...enroll, body })
    const path = `/users/${id}/factors`
    expect((await admin('GET', path)).body).toMatchObject([
      { friendly_name: 'a', status: 'unverified' },
    ])
    const renamed = await admin('PUT', `${path}/${enrolled.body.id}`, { friendly_name: 'b' })
    expect(renamed.body.friendly_name).toBe('b')
    const other = await server.call({ ...enroll, body })
    expect(
      (await admin('PUT', `${path}/${other.body.id}`, { friendly_name: 'b' })).body,
    ).toMatchObject({ code: 422, error_code: 'mfa_factor_name_conflict' })
    await admin('DELETE', `${path}/${other.body.id}`)
    expect((await admin('DELETE', `${path}/${enrolled.body.id}`)).body.id).toBe(enrolled.body.id)
    expect((await admin('GET', path)).body).toEqual([])
  })
})
