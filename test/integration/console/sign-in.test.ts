import { describe, expect } from 'vitest'

import { it } from '#test/support/services.ts'

import { crudeBrowser, formSecretIn, openAdminApp, TOKEN } from './admin-app.ts'

const HOSTILE = '"><img src=x onerror=alert(1)>'

describe('signing in to the administration pages', () => {
  it('shows a form instead of a page, leads back, and ends with signing out', async ({
    redisUrl,
    keyPrefix,
  }) => {
    const { app, close } = await openAdminApp({ redisUrl, keyPrefix })
    const { get, post } = crudeBrowser(app)
    const refused = await get('/admin/queues')
    expect(refused.statusCode).toBe(401)
    // The other kind would bring up the browser's own window.
    expect(refused.headers['www-authenticate']).toBe('Bearer realm="Millrace"')
    expect(refused.headers['content-security-policy']).toContain("script-src 'self';")
    expect(refused.headers['content-security-policy']).not.toContain('unsafe-inline')
    const form = formSecretIn(refused.body)
    const signedIn = await post('/admin/sign-in', { form, token: TOKEN, next: '/admin/queues' })
    expect(signedIn.statusCode).toBe(303)
    expect(signedIn.headers.location).toBe('../admin/queues')
    const cookie = signedIn.cookies.find(({ name }) => name === 'millrace_admin')
    expect(cookie).toMatchObject({ httpOnly: true, sameSite: 'Strict', path: '/admin' })
    expect((await get('/admin/queues')).statusCode).toBe(200)
    const page = await get('/admin')
    expect(page.statusCode).toBe(200)
    const out = await post('/admin/sign-out', { form: formSecretIn(page.body) })
    expect(out.statusCode).toBe(303)
    expect((await get('/admin')).statusCode).toBe(401)
    // The browser may drop the cookie; the session itself must have ended.
    const again = await app.inject({
      url: '/admin',
      headers: { cookie: `millrace_admin=${cookie?.value}` },
    })
    expect(again.statusCode).toBe(401)
    await close()
  })

  it('asks the user server about e-mail and password, and again at every request', async ({
    redisUrl,
    keyPrefix,
  }) => {
    const administrators = new Map([['user-1', 'of the password']])
    const { app, close } = await openAdminApp({
      redisUrl,
      keyPrefix,
      administrators,
      checkPassword: async ({ email, password }) =>
        password === 'right'
          ? {
              kind: 'administrator',
              userId: 'user-1',
              name: email,
              sessionId: 'session-1',
              passwordDigest: 'of the password',
              isProven: false,
            }
          : { kind: 'refused', status: 403, reason: 'This account is not an administrator.' },
    })
    const { get, submit } = crudeBrowser(app)
    const wrong = await submit({ email: 'a@example.test', password: 'wrong' })
    expect(wrong.statusCode).toBe(403)
    expect(wrong.body).toContain('This account is not an administrator.')
    expect((await submit({ email: 'a@example.test', password: 'right' })).statusCode).toBe(303)
    expect((await get('/admin')).body).toContain('a@example.test')
    administrators.set('user-1', 'of another password')
    expect((await get('/admin')).statusCode).toBe(401)
    administrators.set('user-1', 'of the password')
    expect((await get('/admin')).statusCode).toBe(200)
    administrators.delete('user-1')
    expect((await get('/admin')).statusCode).toBe(401)
    await close()
  })

  it.for([
    ['from another site', {}, { 'sec-fetch-site': 'cross-site' }],
    ['from a sibling of the host', {}, { 'sec-fetch-site': 'same-site' }],
    [
      'from an older browser on another site',
      {},
      { 'sec-fetch-site': undefined, origin: 'http://evil.test' },
    ],
    ['of an unknown origin', {}, { 'sec-fetch-site': undefined, origin: 'null' }],
    ['without the secret of the form', { form: '' }, {}],
    ['with another secret', { form: 'A'.repeat(43) }, {}],
  ] as const)('refuses a form %s', async ([, fields, headers], { redisUrl, keyPrefix }) => {
    const { app, close } = await openAdminApp({ redisUrl, keyPrefix })
    const browser = crudeBrowser(app)
    const answer = await browser.submit({ token: TOKEN, ...fields }, headers)
    expect(answer.statusCode).toBe(403)
    expect(browser.cookies.has('millrace_admin')).toBe(false)
    await close()
  })

  it('accepts a form of an older browser on the same site', async ({ redisUrl, keyPrefix }) => {
    const { app, close } = await openAdminApp({ redisUrl, keyPrefix })
    const { submit } = crudeBrowser(app)
    const answer = await submit({ token: TOKEN }, { 'sec-fetch-site': undefined })
    expect(answer.statusCode).toBe(303)
    await close()
  })

  it('does not let a foreign form sign anybody out', async ({ redisUrl, keyPrefix }) => {
    const { app, close } = await openAdminApp({ redisUrl, keyPrefix })
    const { get, post, submit } = crudeBrowser(app)
    await submit({ token: TOKEN })
    expect((await post('/admin/sign-out', {})).statusCode).toBe(403)
    expect((await get('/admin')).statusCode).toBe(200)
    await close()
  })

  it('makes an address wait after ten failures', async ({ redisUrl, keyPrefix }) => {
    const { app, close } = await openAdminApp({ redisUrl, keyPrefix })
    const { submit } = crudeBrowser(app)
    for (let attempt = 0; attempt < 10; attempt++) {
      expect((await submit({ token: `guess ${attempt}` })).statusCode).toBe(401)
    }
    const late = await submit({ token: TOKEN })
    expect(late.statusCode).toBe(429)
    expect(Number(late.headers['retry-after'])).toBeGreaterThan(0)
    await close()
  })

  it('counts simultaneous attempts like those one after another', async ({
    redisUrl,
    keyPrefix,
  }) => {
    const { app, close } = await openAdminApp({ redisUrl, keyPrefix })
    const { get, post } = crudeBrowser(app)
    const form = formSecretIn((await get('/admin/sign-in')).body)
    const answers = await Promise.all(
      Array.from({ length: 40 }, (_, guess) => post('/admin/sign-in', { form, token: `${guess}` })),
    )
    expect(answers.filter(({ statusCode }) => statusCode === 401)).toHaveLength(10)
    expect(answers.filter(({ statusCode }) => statusCode === 429)).toHaveLength(30)
    await close()
  })

  it('clears the failures of an address that signs in', async ({ redisUrl, keyPrefix }) => {
    const { app, close } = await openAdminApp({ redisUrl, keyPrefix })
    const { submit } = crudeBrowser(app)
    for (let time = 0; time < 12; time++) {
      expect((await submit({ token: TOKEN })).statusCode).toBe(303)
    }
    await close()
  })

  it('never leads to another site, and writes hostile texts as texts', async ({
    redisUrl,
    keyPrefix,
  }) => {
    const { app, close } = await openAdminApp({ redisUrl, keyPrefix })
    const { submit } = crudeBrowser(app)
    for (const next of ['//evil.test', 'https://evil.test', '/admin/../x', '/admin\n', HOSTILE]) {
      expect((await submit({ token: TOKEN, next })).headers.location).toBe('../admin')
    }
    const page = await submit({ email: HOSTILE, password: 'x' })
    expect(page.body).toContain('&quot;&gt;&lt;img src=x onerror=alert(1)&gt;')
    expect(page.body).not.toContain('<img src=x')
    await close()
  })

  it('keeps no secret in Redis', async ({ redisUrl, keyPrefix }) => {
    const { app, redis, close } = await openAdminApp({ redisUrl, keyPrefix })
    const { submit, cookies } = crudeBrowser(app)
    await submit({ token: TOKEN })
    const secret = cookies.get('millrace_admin') ?? ''
    const names = await redis.keys(`${keyPrefix}:admin:*`)
    const values = await redis.mget(names)
    // The session, and the mark of an address that has signed in.
    expect(names).toHaveLength(2)
    expect(`${names} ${values}`).not.toContain(secret)
    expect(`${names} ${values}`).not.toContain(TOKEN)
    for (const name of names) expect(await redis.ttl(name)).toBeGreaterThan(0)
    await close()
  })
})
