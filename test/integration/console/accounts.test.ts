import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { type MailCatcher, startMailCatcher } from '#test/support/mail-catcher.ts'

import { type ConsoleClient, type ConsoleStack, openConsole } from './console-stack.ts'

let stack: ConsoleStack
let mail: MailCatcher
let administrator: ConsoleClient

beforeAll(async () => {
  mail = await startMailCatcher()
  stack = await openConsole({ AUTH_SMTP_PORT: String(mail.port) })
  administrator = await stack.signIn('administrator')
})
afterAll(async () => {
  await stack?.close()
  await mail?.stop()
})

const count = async (table: string, userId: string): Promise<number> => {
  const { rows } = await stack.services.database.pool.query<{ count: number }>(
    `select count(*)::int from ${table} where user_id = $1`,
    [userId],
  )
  return rows[0]?.count ?? 0
}

describe('organizations', () => {
  it('are created for a user, found, changed, and deleted with their keys', async () => {
    await stack.createUser('owner@example.test')
    const { read, send, attempt } = administrator
    const created = await send('POST', 'organizations', {
      name: 'Acme',
      owner_email: 'Owner@example.test',
    })
    const find = async () => (await read(`organizations?query=${created.id}`)).rows[0]
    expect(await find()).toMatchObject({ name: 'Acme', members: 1, keys: 0, retention_days: null })
    const path = `organizations/${created.id}`
    await send('PATCH', path, { name: 'Acme & Sons', retention_days: 7 })
    expect(await find()).toMatchObject({ name: 'Acme & Sons', retention_days: 7 })
    await send('POST', `${path}/quotas`, { tokens_per_day: 1000, cost_per_month: 0.5 })
    expect(await find()).toMatchObject({ tokens_per_day: 1000, cost_per_month: 0.5 })
    const quotas = (await read('quotas')).rows
    const ofAll = { organization_id: created.id, organization: 'Acme & Sons', key: null, used: 0 }
    expect(quotas).toMatchObject([
      { ...ofAll, amount: 'tokens', period: 'day', limit: 1000 },
      { ...ofAll, amount: 'cost', period: 'month', limit: 0.5 },
    ])
    await send('POST', `${path}/quotas`, {})
    expect(await find()).toMatchObject({ tokens_per_day: null, cost_per_month: null })
    const { rows: members } = await read(`${path}/members`)
    expect(members).toMatchObject([{ email: 'owner@example.test', role: 'owner' }])
    const member = `${path}/members/${members[0].user_id}`
    expect(await attempt('PATCH', member, { body: { role: 'member' } })).toMatchObject({
      status: 409,
      code: 'last_owner',
    })
    const key = await send('POST', 'keys', { organization_id: created.id, name: 'k' })
    await send('DELETE', path)
    expect(await find()).toBe(undefined)
    expect((await stack.v1('GET', '/models', undefined, key.secret)).error.code).toBe(
      'invalid_api_key',
    )
  })

  it('need a user that exists', async () => {
    const body = { name: 'x', owner_email: 'nobody@example.test' }
    const answer = await administrator.attempt('POST', 'organizations', { body })
    expect(answer.status).toBe(404)
    expect(answer.text).toContain('owner_email')
  })
})

describe('users', () => {
  it('are invited by mail, with a link that leads to the site', async () => {
    await administrator.send('POST', 'users/invite', { email: 'guest@example.test' })
    const message = await mail.waitFor('guest@example.test')
    expect(message.text).not.toContain('console')
    const { rows } = await administrator.read('users?query=guest@')
    expect(rows).toMatchObject([{ email: 'guest@example.test', confirmed_at: null }])
    const { rows: entries } = await administrator.read('audit?query=user_invited')
    expect(entries[0].actor).toMatch(/^administrator-/)
  })

  it('are banned and unbanned, but not by themselves', async () => {
    const id = await stack.createUser('banned@example.test')
    await administrator.send('POST', `users/${id}/ban`, { hours: 2 })
    const find = async () => (await administrator.read(`users?query=${id}`)).rows[0]
    const untilMs = new Date((await find()).banned_until).getTime()
    expect(untilMs - Date.now()).toBeGreaterThan(3_600_000)
    await administrator.send('POST', `users/${id}/unban`)
    expect((await find()).banned_until).toBe(null)
    const own = await administrator.attempt('POST', `users/${administrator.userId}/ban`, {
      body: { hours: 1 },
    })
    expect(own).toMatchObject({ status: 409, code: 'own_account' })
  })

  it('lose their sessions and second factors when asked', async () => {
    const id = await stack.createUser('careful@example.test')
    const { pool } = stack.services.database
    await pool.query(
      `insert into mfa_factors (id, user_id, factor_type, status, secret, created_at, updated_at)
       values (gen_random_uuid(), $1, 'totp', 'verified', 'A', now(), now())`,
      [id],
    )
    await pool.query(
      `insert into sessions (id, user_id, aal, created_at, updated_at)
       values (gen_random_uuid(), $1, 'aal2', now(), now())`,
      [id],
    )
    const { rows } = await administrator.read(`users/${id}/sessions`)
    expect(rows).toMatchObject([{ aal: 'aal2' }])
    await administrator.send('DELETE', `users/${id}/factors`)
    await administrator.send('DELETE', `users/${id}/sessions`)
    expect(await count('mfa_factors', id)).toBe(0)
    expect(await count('sessions', id)).toBe(0)
  })

  it('lose their sessions of the console, too', async () => {
    const [other, viewer] = [await stack.signIn('viewer'), await stack.signIn('viewer')]
    await administrator.send('DELETE', `users/${viewer.userId}/sessions`)
    expect((await viewer.attempt('GET', 'users')).status).toBe(401)
    expect((await other.attempt('GET', 'users')).status).toBe(200)
  })

  it.for(['not-a-uuid', '00000000-0000-4000-8000-000000000000'])(
    'are not found as %s',
    async (id) => {
      expect((await administrator.attempt('POST', `users/${id}/unban`)).status).toBe(404)
    },
  )
})

describe('API keys', () => {
  it('show their secret once, work, are rotated and revoked', async () => {
    const { rows: organizations } = await administrator.read('organizations?query=Default')
    const organizationId = organizations[0].id as string
    const created = await administrator.send('POST', 'keys', {
      organization_id: organizationId,
      name: 'ci',
      scopes: ['embeddings', 'usage'],
      models: ['tiny-chat'],
      expires_in_days: 30,
    })
    const isAccepted = async (secret: string): Promise<boolean> =>
      (await stack.v1('GET', '/models', undefined, secret)).object === 'list'
    expect(await isAccepted(created.secret)).toBe(true)
    const list = await administrator.read(`keys?query=${created.id}`)
    expect(list.rows).toMatchObject([
      { name: 'ci', scopes: ['embeddings', 'usage'], models: ['tiny-chat'] },
    ])
    expect(JSON.stringify(list)).not.toContain(created.secret)
    expect(list.limits.requests_per_minute).toBeGreaterThan(0)
    const limits = { requests_per_minute: 5000, tokens_per_minute: null, cost_per_month: 2.5 }
    await administrator.send('POST', `keys/${created.id}/limits`, limits)
    expect((await administrator.read(`keys?query=${created.id}`)).rows).toMatchObject([limits])
    const limited = await administrator.read(`audit?query=${created.id}`)
    expect(JSON.stringify(limited.rows)).toContain('key.limit')
    const rotated = await administrator.send('POST', `keys/${created.id}/rotate`)
    await expect.poll(() => isAccepted(created.secret)).toBe(false)
    expect(await isAccepted(rotated.secret)).toBe(true)
    await administrator.send('DELETE', `keys/${created.id}`)
    await expect.poll(() => isAccepted(rotated.secret)).toBe(false)
    expect((await administrator.attempt('DELETE', `keys/${created.id}`)).status).toBe(404)
    const { rows: entries } = await administrator.read(`audit?query=${created.id}`)
    expect(JSON.stringify(entries)).not.toContain(rotated.secret)
  })

  it('are refused for models, scopes and organizations that do not exist', async () => {
    const refuse = async (body: object) =>
      (await administrator.attempt('POST', 'keys', { body: { name: 'x', ...body } })).text
    expect(await refuse({ organization_id: 'org-none' })).toContain('org-none')
    expect(await refuse({ organization_id: 'o', models: ['no-model'] })).toContain('models')
    expect(await refuse({ organization_id: 'o', scopes: ['no-scope'] })).toContain('scopes')
  })
})
