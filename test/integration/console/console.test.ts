import { describe, expect } from 'vitest'

import { it } from '#test/support/services.ts'

import { openAdminApp, TOKEN } from './admin-app.ts'

const basic = (password: string) => `Basic ${Buffer.from(`admin:${password}`).toString('base64')}`

describe('the queue board', () => {
  it('admits administrators only, its static files included', async ({ redisUrl, keyPrefix }) => {
    const { get, close } = await openAdminApp({ redisUrl, keyPrefix })
    const statuses = async (authorization?: string) =>
      Promise.all(
        [
          '/admin/queues/',
          '/admin/queues/api/queues',
          '/admin',
          '/admin/overview.json',
          '/admin/queues/static/js/x.js',
        ].map(
          async (url) =>
            (await get(url, authorization === undefined ? {} : { authorization })).statusCode,
        ),
      )
    expect(await statuses()).toEqual([401, 401, 401, 401, 401])
    expect(await statuses('Bearer of-a-user')).toEqual([403, 403, 403, 403, 403])
    expect(await statuses(basic(TOKEN))).toEqual([200, 200, 200, 200, 404])
    expect(await statuses(`Bearer ${TOKEN}`)).toEqual([200, 200, 200, 200, 404])
    expect(await statuses('Bearer of-an-administrator')).toEqual([200, 200, 200, 200, 404])
    await close()
  })

  it.for([
    ['as a bearer', (token: string) => `Bearer ${token}`],
    ['as a password', basic],
  ] as const)(
    'does not tell an address that has guessed ten times %s whether it is right',
    async ([, given], { redisUrl, keyPrefix }) => {
      const { app, get, close } = await openAdminApp({ redisUrl, keyPrefix })
      const guess = (token: string) => get('/admin', { authorization: given(token) })
      const guesses = await Promise.all(
        Array.from({ length: 40 }, (_, number) => guess(`guess ${number}`.replace(' ', '-'))),
      )
      expect(guesses.filter(({ statusCode }) => statusCode === 403)).toHaveLength(10)
      expect(guesses.filter(({ statusCode }) => statusCode === 429)).toHaveLength(30)
      const right = await guess(TOKEN)
      expect(right.statusCode).toBe(429)
      expect(Number(right.headers['retry-after'])).toBeGreaterThan(0)
      // Neither an access token, which cannot be guessed, nor another address has to wait.
      const headers = { authorization: 'Bearer of-an-administrator' }
      expect((await get('/admin', headers)).statusCode).toBe(200)
      const elsewhere = { headers: { authorization: given(TOKEN) }, remoteAddress: '192.0.2.9' }
      expect((await app.inject({ url: '/admin', ...elsewhere })).statusCode).toBe(200)
      await close()
    },
  )

  it('counts no failure for an address with the right password, however often it asks', async ({
    redisUrl,
    keyPrefix,
  }) => {
    const { get, close } = await openAdminApp({ redisUrl, keyPrefix })
    const headers = { authorization: basic(TOKEN) }
    const answers = await Promise.all(Array.from({ length: 30 }, () => get('/admin', headers)))
    expect(answers.map(({ statusCode }) => statusCode)).toEqual(Array(30).fill(200))
    await close()
  })

  it('refuses an empty password if there is no admin token', async ({ redisUrl, keyPrefix }) => {
    const { get, close } = await openAdminApp({ redisUrl, keyPrefix, adminToken: '' })
    expect((await get('/admin', { authorization: basic('') })).statusCode).toBe(401)
    // Nothing is there to be guessed, so nothing is counted.
    for (let attempt = 0; attempt < 12; attempt++) {
      expect((await get('/admin', { authorization: basic('x') })).statusCode).toBe(403)
    }
    await close()
  })

  it('shows a waiting job without its content, and allows no change', async ({
    redisUrl,
    keyPrefix,
  }) => {
    const { app, queue, get, close } = await openAdminApp({ redisUrl, keyPrefix })
    const input = { prompts: [{ form: 'text', text: 'a very private prompt' }] }
    await queue.add(
      'completion',
      { jobId: 'cmpl-1', modelId: 'toy', input, replyTo: 'secret stream' },
      { jobId: 'cmpl-1-1' },
    )
    const answer = await get(
      '/admin/queues/api/queues?activeQueue=completion.toy&status=latest&page=1',
      { authorization: basic(TOKEN) },
    )
    expect(answer.body).toContain('cmpl-1')
    expect(answer.body).toContain('[redacted]')
    expect(answer.body).not.toContain('private prompt')
    expect(answer.body).not.toContain('secret stream')
    const change = await app.inject({
      method: 'PUT',
      url: '/admin/queues/api/queues/completion.toy/cmpl-1-1/clean',
      headers: { authorization: basic(TOKEN) },
    })
    expect(change.statusCode).toBe(405)
    expect(await queue.getJobCountByTypes('waiting', 'prioritized')).toBe(1)
    await close()
  })

  it('forbids scripts and connections from anywhere else', async ({ redisUrl, keyPrefix }) => {
    const { get, close } = await openAdminApp({ redisUrl, keyPrefix })
    const { headers, body } = await get('/admin/queues/', { authorization: basic(TOKEN) })
    expect(headers['content-security-policy']).toContain("default-src 'none'")
    expect(headers['content-security-policy']).toContain("script-src 'self';")
    expect(headers['content-security-policy']).not.toContain('unsafe')
    expect(body).toContain('id="root"')
    for (const barred of ['style="', '<style', 'https://', 'googleapis'])
      expect(body).not.toContain(barred)
    await close()
  })
})
