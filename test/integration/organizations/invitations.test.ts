import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { AuthClient } from '@supabase/auth-js'
import { AuthClient as OlderAuthClient } from '@supabase/auth-js-2-6x'
import { Client } from 'pg'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'

import { type MailCatcher, startMailCatcher } from '#test/support/mail-catcher.ts'
import { freshPrefix } from '#test/support/queue.ts'
import { createDatabase } from '#test/support/services.ts'
import { startTiers, type TierPlace, type Tiers } from '#test/support/tiers.ts'

interface Body {
  id: string
  status: string
  role: string
  email: string
  data: { id: string; role: string; organization_name: string; status: string }[]
  error: { code: string; param: string; message: string }
}

const PASSWORD = 'a long pass phrase'
let place: TierPlace
let tiers: Tiers
let mail: MailCatcher
let sql: Client
let close: (() => Promise<unknown>)[] = []
let counter = 0
const newAddress = (name: string) => {
  counter += 1
  return `${name}-${counter}@example.test`
}

beforeAll(async () => {
  const made = await createDatabase()
  const folder = await mkdtemp(join(tmpdir(), 'millrace-invitations-'))
  mail = await startMailCatcher()
  place = {
    databaseUrl: made.url,
    redisUrl: inject('redisUrl'),
    folder,
    keyPrefix: freshPrefix(),
    env: {
      AUTH_SMTP_HOST: mail.host,
      AUTH_SMTP_PORT: String(mail.port),
      AUTH_RATE_LIMIT_EMAIL_SENT: '1000',
      AUTH_SMTP_MAX_FREQUENCY: '0s',
    },
  }
  tiers = await startTiers(place)
  sql = new Client({ connectionString: made.url })
  await sql.connect()
  close = [
    () => tiers.stop(),
    () => mail.stop(),
    () => sql.end(),
    made.drop,
    () => rm(folder, { recursive: true, force: true }),
  ]
}, 120_000)

afterAll(async () => {
  for (const step of close) await step()
})

async function call(secret: string, method: string, path: string, body?: unknown, url = tiers.url) {
  const answer = await fetch(`${url}/v1${path}`, {
    method,
    headers: {
      authorization: `Bearer ${secret}`,
      ...(body !== undefined && { 'content-type': 'application/json' }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  return { status: answer.status, body: (await answer.json()) as Body }
}

/** The link of the next mail to an address. */
async function linkTo(address: string): Promise<URL> {
  const { html = '' } = await mail.waitFor(address)
  const href = /href="([^"]+)"/.exec(html)?.[1] ?? ''
  return new URL(href.replaceAll('&#38;', '&'))
}

/** Follows a link as a browser does, to the session in the fragment of its target. */
async function follow(link: URL): Promise<{ token: string; target: URL }> {
  const answer = await fetch(link, { redirect: 'manual' })
  const target = new URL(answer.headers.get('location') ?? '')
  return { token: new URLSearchParams(target.hash.slice(1)).get('access_token') ?? '', target }
}

/** A person whose address is confirmed. */
async function newPerson(email = newAddress('person')): Promise<{ email: string; token: string }> {
  await fetch(`${tiers.url}/signup`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ email, password: PASSWORD }),
  })
  return { email, token: (await follow(await linkTo(email))).token }
}

async function newOrganization(name = 'Mill') {
  const owner = await newPerson()
  const { body } = await call(owner.token, 'POST', '/organizations', { name })
  return { owner: owner.token, id: body.id, path: `/organizations/${body.id}/invitations` }
}

const rolesIn = async (token: string, id: string) =>
  (await call(token, 'GET', '/organizations')).body.data
    .filter((one) => one.id === id)
    .map(({ role }) => role)

async function acceptAll(token: string): Promise<void> {
  const { body } = await call(token, 'GET', '/invitations')
  for (const { id } of body.data) await call(token, 'POST', `/invitations/${id}/accept`)
}

describe('the mail of an invitation', () => {
  it('asks a stranger to make a user, and who has one to sign in, and names the organization', async () => {
    const { owner, path } = await newOrganization('Mill & Sons')
    const person = await newPerson()
    const stranger = newAddress('reader')
    for (const email of [person.email, stranger]) await call(owner, 'POST', path, { email })
    const known = await mail.waitFor(person.email)
    expect(known.subject).toBe('You have been invited')
    expect(known.text).toContain('to join Mill & Sons on')
    expect(known.text).toContain('with the account that you have. Follow this link to sign in')
    expect(known.text).not.toContain('create')
    const unknown = await mail.waitFor(stranger)
    expect(unknown.subject).toBe('You have been invited')
    expect(unknown.text).toContain('to join Mill & Sons on')
    expect(unknown.text).toContain('create your user')
  })
})

describe('an invitation', () => {
  it('gives a stranger an account whose link signs them in; they join only when they accept', async () => {
    const { owner, id, path } = await newOrganization()
    const email = newAddress('stranger')
    const made = await call(owner, 'POST', path, { email: email.toUpperCase(), role: 'admin' })
    expect(made).toMatchObject({
      status: 200,
      body: { email, role: 'admin', status: 'pending', id: expect.stringMatching(/^inv_/) },
    })
    const link = await linkTo(email)
    expect(link.searchParams.get('type')).toBe('invite')
    const { token, target } = await follow(link)
    expect(target.searchParams.get('organization_invitation')).toBe(made.body.id)
    expect(await rolesIn(token, id)).toEqual([])
    expect((await call(token, 'POST', `/invitations/${made.body.id}/accept`)).status).toBe(200)
    expect(await rolesIn(token, id)).toEqual(['admin'])
    const { body } = await call(owner, 'GET', `${path}/${made.body.id}`)
    expect(body).toMatchObject({ status: 'accepted', accepted_at: expect.any(Number) })
    expect((await fetch(link, { redirect: 'manual' })).headers.get('location')).toContain('error')
  })

  it('reaches no account whose address is confirmed without proof', async () => {
    const { owner, id, path } = await newOrganization()
    const open = await startTiers({
      ...place,
      env: { ...place.env, AUTH_MAILER_AUTOCONFIRM: 'true' },
    })
    const email = newAddress('squatted')
    const invite = (body: object) => call(owner, 'POST', path, body, open.url)
    const answer = await fetch(`${open.url}/signup`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ email, password: PASSWORD }),
    })
    const { access_token: token, user } = (await answer.json()) as {
      access_token: string
      user: { id: string }
    }
    expect(await invite({ email })).toMatchObject({
      status: 400,
      body: { error: { code: 'unconfirmed_email', param: 'email' } },
    })
    expect((await call(token, 'GET', '/invitations', undefined, open.url)).body.data).toEqual([])
    // Its link confirms the address of an account that the invitation creates.
    const invited = newAddress('invited')
    expect((await invite({ email: invited })).status).toBe(200)
    expect((await invite({ user_id: user.id })).status).toBe(200)
    await acceptAll(token)
    expect(await rolesIn(token, id)).toEqual(['member'])
    await open.stop()
  })

  it.each([
    ['the current client', AuthClient],
    ['an older client', OlderAuthClient as never as typeof AuthClient],
  ])(
    'joins nothing through %s by the token of its link until it is accepted',
    async (_name, Kind) => {
      const { owner, id, path } = await newOrganization()
      const email = newAddress('client')
      await call(owner, 'POST', path, { email })
      const token_hash = (await linkTo(email)).searchParams.get('token') ?? ''
      const client = new Kind({ url: tiers.url, persistSession: false, autoRefreshToken: false })
      const { data, error } = await client.verifyOtp({ token_hash, type: 'invite' })
      expect(error).toBe(null)
      const token = data.session?.access_token ?? ''
      expect(await rolesIn(token, id)).toEqual([])
      await acceptAll(token)
      expect(await rolesIn(token, id)).toEqual(['member'])
    },
  )

  it('signs an existing user in by its link, and each is accepted by itself', async () => {
    const person = await newPerson()
    const [first, second] = [await newOrganization('First'), await newOrganization('Second')]
    const made = await call(first.owner, 'POST', first.path, { email: person.email })
    await linkTo(person.email)
    await call(second.owner, 'POST', second.path, { email: person.email })
    const link = await linkTo(person.email)
    expect(link.searchParams.get('type')).toBe('magiclink')
    expect(await rolesIn(person.token, second.id)).toEqual([])
    const { token, target } = await follow(link)
    expect(await rolesIn(token, second.id)).toEqual([])
    const named = target.searchParams.get('organization_invitation')
    expect((await call(token, 'POST', `/invitations/${named}/accept`)).status).toBe(200)
    expect(await rolesIn(token, second.id)).toEqual(['member'])
    expect(await rolesIn(token, first.id)).toEqual([])
    const open = await call(token, 'GET', '/invitations')
    expect(open.body.data).toMatchObject([{ id: made.body.id, organization_name: 'First' }])
    const accepted = await call(token, 'POST', `/invitations/${made.body.id}/accept`)
    expect(accepted).toMatchObject({ status: 200, body: { status: 'accepted' } })
    expect(await rolesIn(token, first.id)).toEqual(['member'])
    expect((await call(token, 'POST', `/invitations/${made.body.id}/accept`)).status).toBe(404)
  })

  it('is not accepted by a plain magic link whose redirect_to names it', async () => {
    const { owner, id, path } = await newOrganization()
    const person = await newPerson()
    const { body } = await call(owner, 'POST', path, { email: person.email })
    await linkTo(person.email)
    const target = encodeURIComponent(`${tiers.url}/?organization_invitation=${body.id}`)
    await fetch(`${tiers.url}/otp?redirect_to=${target}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ email: person.email }),
    })
    const { token } = await follow(await linkTo(person.email))
    expect(await rolesIn(token, id)).toEqual([])
  })

  it('cannot be seen, accepted or declined by another user', async () => {
    const { owner, id, path } = await newOrganization()
    const stranger = await newPerson()
    const { body } = await call(owner, 'POST', path, { email: newAddress('other') })
    for (const way of ['accept', 'decline'])
      expect((await call(stranger.token, 'POST', `/invitations/${body.id}/${way}`)).status).toBe(
        404,
      )
    expect((await call(stranger.token, 'GET', path)).status).toBe(404)
    expect((await call(stranger.token, 'GET', `${path}/${body.id}`)).status).toBe(404)
    expect((await call(stranger.token, 'DELETE', `${path}/${body.id}`)).status).toBe(404)
    expect((await call(stranger.token, 'GET', '/invitations')).body.data).toEqual([])
    expect(await rolesIn(stranger.token, id)).toEqual([])
    expect((await call(tiers.apiKey, 'GET', '/invitations')).status).toBe(403)
  })

  it('is void once revoked, declined or expired', async () => {
    const { owner, path, id } = await newOrganization()
    const person = await newPerson()
    const invite = async () => (await call(owner, 'POST', path, { email: person.email })).body.id
    const revoked = await invite()
    const link = await linkTo(person.email)
    expect((await call(owner, 'DELETE', `${path}/${revoked}`)).status).toBe(200)
    expect((await call(owner, 'DELETE', `${path}/${revoked}`)).body.error.code).toBe(
      'invitation_not_open',
    )
    await follow(link)
    expect((await call(person.token, 'POST', `/invitations/${revoked}/accept`)).status).toBe(404)
    const declined = await invite()
    const answer = await call(person.token, 'POST', `/invitations/${declined}/decline`)
    expect(answer.body.status).toBe('declined')
    const expired = await invite()
    await sql.query(
      "update organization_invitations set expires_at = now() - interval '1 second' where id = $1",
      [expired],
    )
    expect((await call(person.token, 'POST', `/invitations/${expired}/accept`)).status).toBe(404)
    const listed = await call(owner, 'GET', path)
    expect(listed.body.data.map(({ id: one, status }) => [one, status])).toEqual([
      [expired, 'expired'],
      [declined, 'declined'],
      [revoked, 'revoked'],
    ])
    // A lapsed one makes room.
    const again = await call(owner, 'POST', path, { email: person.email, expires_in_days: 30 })
    expect(again.status).toBe(200)
    expect(await rolesIn(person.token, id)).toEqual([])
  })

  it('can be made only by owners and administrators, and owners are invited only by owners', async () => {
    const { owner, id, path } = await newOrganization()
    const [member, admin] = [await newPerson(), await newPerson()]
    for (const [person, role] of [
      [member, 'member'],
      [admin, 'admin'],
    ] as const) {
      await call(owner, 'POST', path, { email: person.email, role })
      await acceptAll((await follow(await linkTo(person.email))).token)
      expect(await rolesIn(person.token, id)).toEqual([role])
    }
    const as = (token: string, role: string) =>
      call(token, 'POST', path, { email: newAddress('guest'), role })
    expect((await as(member.token, 'member')).status).toBe(403)
    expect((await call(member.token, 'GET', path)).status).toBe(403)
    expect((await as(admin.token, 'owner')).status).toBe(403)
    expect((await as(admin.token, 'admin')).status).toBe(200)
    const byOwner = await as(owner, 'owner')
    expect(byOwner.status).toBe(200)
    expect((await call(admin.token, 'DELETE', `${path}/${byOwner.body.id}`)).status).toBe(403)
  })

  it('is refused with the reason', async () => {
    const { owner, path } = await newOrganization()
    const person = await newPerson()
    const first = await call(owner, 'POST', path, { email: person.email })
    expect(first.status).toBe(200)
    const cases: [unknown, number, string, string][] = [
      [{ email: person.email }, 409, 'email', 'already_invited'],
      [{ email: 'nobody' }, 400, 'email', 'validation_failed'],
      [{}, 400, 'email', 'missing_required_parameter'],
      [{ email: 'a@example.test', role: 'king' }, 400, 'role', 'invalid_value'],
      [
        { email: 'a@example.test', expires_in_days: 31 },
        400,
        'expires_in_days',
        'integer_above_max_value',
      ],
      [{ email: 'a@example.test', colour: 'red' }, 400, 'colour', 'unknown_parameter'],
    ]
    for (const [body, status, param, code] of cases) {
      const answer = await call(owner, 'POST', path, body)
      expect([body, answer]).toMatchObject([body, { status, body: { error: { param, code } } }])
    }
    const king = await call(owner, 'POST', path, { email: 'a@example.test', role: 'king' })
    expect(JSON.stringify(king.body)).toContain("'owner', 'admin', and 'member'")
    await acceptAll((await follow(await linkTo(person.email))).token)
    const member = await call(owner, 'POST', path, { email: person.email })
    expect(member.body.error.code).toBe('already_member')
  })

  it('is mailed later while the mail server is down', async () => {
    const { owner, path } = await newOrganization()
    const email = newAddress('unreachable')
    mail.refuseAll(true)
    expect((await call(owner, 'POST', path, { email })).status).toBe(200)
    mail.refuseAll(false)
    expect((await call(owner, 'GET', path)).body.data).toHaveLength(1)
    const { token } = await follow(await linkTo(email))
    await acceptAll(token)
  })

  it('may be created with an API key', async () => {
    const { body } = await call(tiers.apiKey, 'GET', '/organizations')
    const email = newAddress('by-key')
    const path = `/organizations/${body.data[0]?.id}/invitations`
    expect((await call(tiers.apiKey, 'POST', path, { email })).status).toBe(200)
    const { token } = await follow(await linkTo(email))
    await acceptAll(token)
    expect(await rolesIn(token, body.data[0]?.id ?? '')).toEqual(['member'])
  })
})
