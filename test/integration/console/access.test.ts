import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { type ConsoleStack, openConsole } from './console-stack.ts'

let stack: ConsoleStack
beforeAll(async () => {
  stack = await openConsole()
})
afterAll(() => stack?.close())

describe('access to the console', () => {
  it('gives each role its rights and the rights of the lower roles', async () => {
    const attempts = [
      ['GET', 'queues'],
      ['POST', 'queues/completion.tiny-chat/resume'],
      ['GET', 'audit'],
      ['DELETE', 'organizations/org-none'],
    ] as const
    const statuses = async (role: 'viewer' | 'operator' | 'administrator' | 'token') => {
      const client = await stack.signIn(role)
      return Promise.all(
        attempts.map(async ([method, path]) => (await client.attempt(method, path)).status),
      )
    }
    expect(await statuses('viewer')).toEqual([200, 403, 403, 403])
    expect(await statuses('operator')).toEqual([200, 200, 403, 403])
    expect(await statuses('administrator')).toEqual([200, 200, 200, 404])
    expect(await statuses('token')).toEqual([200, 200, 200, 404])
  })

  it.for([
    ['without the token of the page', { 'x-console-token': '' }],
    ['with another token', { 'x-console-token': 'a'.repeat(43) }],
    ['from another site', { 'sec-fetch-site': 'cross-site' }],
    ['from another host of the site', { 'sec-fetch-site': 'same-site' }],
  ] as const)('refuses a change $0', async ([, headers]) => {
    const client = await stack.signIn('token')
    const answer = await client.attempt('POST', 'queues/completion.tiny-chat/pause', { headers })
    expect(answer).toMatchObject({ status: 403, code: 'foreign_request' })
    const { rows } = await client.read('queues')
    expect(rows.find(({ model }: { model: string }) => model === 'tiny-chat').is_paused).toBe(false)
  })

  it('accepts changes with a header, as programs send them, and refuses strangers', async () => {
    const url = '/admin/api/queues/completion.tiny-chat/resume'
    const post = (headers: Record<string, string>) =>
      stack.app.inject({ method: 'POST', url, headers })
    const bearer = { authorization: 'Bearer the-admin-token-of-the-console' }
    expect((await post(bearer)).statusCode).toBe(200)
    expect((await post({ ...bearer, origin: 'https://elsewhere.test' })).statusCode).toBe(403)
    expect((await post({})).statusCode).toBe(401)
    expect((await post({ authorization: 'Bearer of-nobody' })).statusCode).toBe(403)
  })

  it('ends when the role is removed, the user is banned or a second factor is enrolled', async () => {
    const administrator = await stack.signIn('token')
    const { database } = stack.services
    const changes: readonly ((userId: string) => Promise<unknown>)[] = [
      (id) => administrator.send('POST', `users/${id}/console-role`, { role: 'none' }),
      (id) => administrator.send('POST', `users/${id}/ban`, { hours: 1 }),
      (id) =>
        database.pool.query(
          `insert into mfa_factors (id, user_id, factor_type, status, secret, created_at, updated_at)
           values (gen_random_uuid(), $1, 'totp', 'verified', 'A', now(), now())`,
          [id],
        ),
    ]
    for (const change of changes) {
      const client = await stack.signIn('operator')
      expect((await client.attempt('GET', 'queues')).status).toBe(200)
      await change(client.userId ?? '')
      expect((await client.attempt('GET', 'queues')).status).toBe(401)
    }
  })

  it('writes every change to the audit log under the name of its administrator', async () => {
    const client = await stack.signIn('administrator')
    await client.send('POST', 'queues/completion.tiny-chat/resume')
    await client.attempt('DELETE', 'organizations/org-none')
    const { rows } = await client.read('audit?query=console_action')
    expect(rows.slice(0, 3)).toMatchObject([
      {
        traits: { operation: 'organization.delete', organization: 'org-none', failed: 'notFound' },
      },
      { traits: { operation: 'organization.delete', organization: 'org-none' } },
      { traits: { operation: 'queue.resume', queue: 'completion.tiny-chat' } },
    ])
    expect(new Set(rows.slice(0, 3).map(({ actor }: { actor: string }) => actor)).size).toBe(1)
    expect(rows[0].actor).toMatch(/^administrator-.*@example\.test$/)
  })

  it('names the field of bad input', async () => {
    const client = await stack.signIn('token')
    const answer = await client.attempt('POST', 'users/invite', { body: { mail: 'x@y.test' } })
    expect(answer.status).toBe(400)
    expect(answer.text).toContain('email')
    expect((await client.attempt('GET', 'usage?days=0')).text).toContain('days')
  })
})
