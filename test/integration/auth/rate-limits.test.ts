import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { fakeProviders } from './support/fake-provider.ts'
import { createUser, newEmail, PASSWORD } from './support/people.ts'
import { type CallResult, startServer, type TestServer } from './support/server.ts'

describe('limits per client', () => {
  let server: TestServer
  beforeAll(async () => {
    server = await startServer({
      isFrozen: true,
      env: { AUTH_RATE_LIMIT_HEADER: 'X-Forwarded-For', AUTH_RATE_LIMIT_VERIFY: '60' },
    })
  })
  afterAll(() => server.close())

  const verify = (address: string): Promise<CallResult> =>
    server.call({
      method: 'POST',
      path: '/verify',
      body: { type: 'email', email: newEmail(), token: '123456' },
      headers: address === '' ? {} : { 'x-forwarded-for': address },
    })

  it('allow a burst of thirty, even at the same moment, and refill evenly', async () => {
    const answers = await Promise.all(Array.from({ length: 40 }, () => verify('192.0.2.1')))
    expect(answers.filter((answer) => answer.status === 429)).toHaveLength(10)
    const refused = await verify('192.0.2.1, 10.0.0.1')
    expect(refused.body).toEqual({
      code: 429,
      error_code: 'over_request_rate_limit',
      msg: 'Request rate limit reached',
    })
    // 60 in five minutes are one in five seconds.
    expect(refused.headers['retry-after']).toBe('5')
    server.clock.advance(5)
    expect((await verify('192.0.2.1')).status).toBe(403)
    expect((await verify('192.0.2.1')).status).toBe(429)
  })

  it('count per client and route', async () => {
    for (let turn = 0; turn < 31; turn += 1) await verify('192.0.2.2')
    expect((await verify('192.0.2.2')).status).toBe(429)
    expect((await verify('192.0.2.3')).status).toBe(403)
    const headers = { 'x-forwarded-for': '192.0.2.2' }
    const path = '/token?grant_type=refresh_token'
    const body = { refresh_token: 'x' }
    expect((await server.call({ method: 'POST', path, body, headers })).status).toBe(400)
  })

  it('see through ports and through the many addresses of one network', async () => {
    for (let turn = 0; turn < 30; turn += 1) {
      await verify(`192.0.2.9:${50_000 + turn}, 10.0.0.1:80`)
      await verify(`[2001:db8:1:2:${turn}::1]:443`)
    }
    expect((await verify('::ffff:192.0.2.9')).status).toBe(429)
    expect((await verify('2001:DB8:1:2::77')).status).toBe(429)
    expect((await verify('2001:db8:1:3::77')).status).toBe(403)
  })

  it('do not touch requests without the header', async () => {
    for (let turn = 0; turn < 35; turn += 1) expect((await verify('')).status).toBe(403)
  })
})

describe('limits per network', () => {
  it('bound sign-ups without a configured header, for an IPv6 /64 as one and for each route separately', async () => {
    const server = await startServer({
      isFrozen: true,
      env: { AUTH_EXTERNAL_ANONYMOUS_USERS_ENABLED: 'true', AUTH_MAILER_AUTOCONFIRM: 'true' },
    })
    const post = async (url: string, payload: object, remoteAddress: string) => {
      const answer = await server.app.inject({ method: 'POST', url, payload, remoteAddress })
      const refused = answer.json<{ error_code?: string }>().error_code
      return refused === undefined ? answer.statusCode : `${answer.statusCode} ${refused}`
    }
    const count = async (answers: Promise<unknown>[], status: unknown) =>
      (await Promise.all(answers)).filter((answer) => answer === status).length
    const refused = '429 over_request_rate_limit'
    try {
      // Many people may share one address: ten times as many as a client may.
      const anonymous = (address: string) => post('/signup', {}, address)
      const all = Array.from({ length: 310 }, (_, n) => anonymous(`2600:1:1:2::${n + 1}`))
      // Others may fail for want of a connection to Postgres, on a busy machine.
      expect(await count(all, refused)).toBe(10)
      expect(await anonymous('2600:1:1:2:3::1')).toBe(refused)
      expect(await anonymous('2600:1:1:3::1')).toBe(200)
      server.clock.advance(12)
      expect(await anonymous('2600:1:1:2::1')).toBe(200)
      expect(await anonymous('2600:1:1:2::1')).toBe(refused)
      for (const [url, payload] of [
        ['/signup', { email: 'x', password: PASSWORD }],
        ['/otp', { email: 'x' }],
        ['/magiclink', { email: 'x' }],
      ] as const) {
        const sent = Array.from({ length: 303 }, () => post(url, payload, '8.8.4.4'))
        expect([url, await count(sent, refused)]).toEqual([url, 3])
      }
      // All users of a proxy that is not trusted have its address.
      const proxied = Array.from({ length: 310 }, () => anonymous('10.0.0.7'))
      expect(await count(proxied, refused)).toBe(0)
      // Sign-ins are bounded by their failures instead.
      const signIns = Array.from({ length: 310 }, () =>
        post('/token?grant_type=refresh_token', { refresh_token: 'x' }, '8.8.4.4'),
      )
      expect(await count(signIns, refused)).toBe(0)
    } finally {
      await server.close()
    }
  })
})

describe('sign-ins by a provider that begin', () => {
  it('are bounded for a network without a configured header, because each is stored', async () => {
    const server = await startServer({ isFrozen: true, providers: fakeProviders() })
    try {
      const begin = async (remoteAddress: string) => {
        const url = '/authorize?provider=github'
        return (await server.app.inject({ url, remoteAddress })).statusCode
      }
      const statuses = await Promise.all(Array.from({ length: 303 }, () => begin('8.8.4.4')))
      expect(statuses.filter((status) => status === 429)).toHaveLength(3)
      expect(await begin('8.8.8.8')).toBe(302)
      expect(await begin('10.0.0.7')).toBe(302)
      const count = 'select count(*)::int as flows from flow_states'
      expect((await server.database.pool.query(count)).rows).toEqual([{ flows: 302 }])
    } finally {
      await server.close()
    }
  })
})

describe('the gap between two mails to one user', () => {
  it('is 900 seconds for confirmations and 60 for links by default', async () => {
    const env = { AUTH_SMTP_MAX_FREQUENCY: '' }
    const server = await startServer({ isFrozen: true, env })
    const wait = async (path: string, body: object): Promise<string> =>
      (await server.call({ method: 'POST', path, body })).body.msg ?? 'sent'
    const email = newEmail()
    const { email: known } = await createUser(server)
    const tooSoon = (seconds: number) =>
      `For security purposes, you can only request this after ${seconds} seconds.`
    const signUp = () => wait('/signup', { email, password: PASSWORD })
    const recover = () => wait('/recover', { email: known })
    expect([await signUp(), await recover()]).toEqual(['sent', 'sent'])
    server.clock.advance(59)
    expect([await signUp(), await recover()]).toEqual([tooSoon(841), tooSoon(1)])
    server.clock.advance(1)
    expect([await signUp(), await recover()]).toEqual([tooSoon(840), 'sent'])
    server.clock.advance(840)
    expect(await signUp()).toBe('sent')
    await server.close()
  })

  it('lets one of twenty requests at once send a mail', async () => {
    const server = await startServer()
    const { email } = await createUser(server)
    const answers = await Promise.all(
      Array.from({ length: 20 }, () =>
        server.call({ method: 'POST', path: '/recover', body: { email } }),
      ),
    )
    expect(answers.filter((answer) => answer.status === 200)).toHaveLength(1)
    expect(answers.filter((answer) => answer.status === 429)).toHaveLength(19)
    expect(server.mails).toHaveLength(1)
    await server.close()
  })
})

describe('guesses of credentials', () => {
  const start = (env: Record<string, string> = {}) => startServer({ isFrozen: true, env })
  const signInAs = (server: TestServer, email: string, password: string, address = '') =>
    server.call({
      method: 'POST',
      path: '/token?grant_type=password',
      body: { email, password },
      headers: address === '' ? {} : { 'x-client': address },
    })
  const HEADER = { AUTH_RATE_LIMIT_HEADER: 'X-Client', AUTH_RATE_LIMIT_TOKEN_REFRESH: '100000' }

  it('of a password double the wait each time, for right and wrong ones, known and unknown accounts', async () => {
    const server = await start()
    const { email } = await createUser(server)
    const statuses = { known: [] as string[], unknown: [] as string[] }
    for (const [name, address] of [
      ['known', email],
      ['unknown', newEmail()],
    ] as const) {
      for (let turn = 0; turn < 10; turn += 1) {
        expect((await signInAs(server, address, 'wrong')).status).toBe(400)
      }
      for (let turn = 0; turn < 8; turn += 1) {
        const refused = await signInAs(server, address, PASSWORD)
        expect(refused.body).toMatchObject({ code: 429, error_code: 'over_request_rate_limit' })
        statuses[name].push(refused.headers['retry-after'] ?? '')
        server.clock.advance(Number(refused.headers['retry-after']))
        expect((await signInAs(server, address, 'wrong')).status).toBe(400)
      }
    }
    expect(statuses.known).toEqual(['5', '10', '20', '40', '80', '160', '320', '640'])
    expect(statuses.unknown).toEqual(statuses.known)
    await server.close()
  })

  it('that arrive at the same time are answered as often as one after another, even if one is right', async () => {
    const server = await start()
    const { email } = await createUser(server)
    const answers = await Promise.all(
      Array.from({ length: 40 }, (_, turn) => signInAs(server, email, `wrong ${turn}`)),
    )
    expect(answers.filter(({ status }) => status === 400)).toHaveLength(10)
    expect(answers.filter(({ status }) => status === 429)).toHaveLength(30)
    await server.close()
  })

  it('of an account that signs in no longer count, and successes are no guesses', async () => {
    const server = await start({ MILLRACE_USER_CHANGES_PER_HOUR: '0' })
    const { email } = await createUser(server)
    for (let round = 0; round < 3; round += 1) {
      for (let turn = 0; turn < 9; turn += 1) await signInAs(server, email, 'wrong')
      expect((await signInAs(server, email, PASSWORD)).status).toBe(200)
    }
    const many = await Promise.all(
      Array.from({ length: 120 }, () => signInAs(server, email, PASSWORD)),
    )
    expect(many.every(({ status }) => status === 200)).toBe(true)
    await server.close()
  })

  it('at many accounts count for the network, an IPv6 /64 as one, and a success does not reset it', async () => {
    const server = await start(HEADER)
    const { email } = await createUser(server)
    const { email: own } = await createUser(server)
    for (let turn = 0; turn < 49; turn += 1) {
      // The bucket of the route refills; the failures stay.
      if (turn % 20 === 19) server.clock.advance(1)
      await signInAs(server, newEmail(), 'wrong', `2001:db8:7:7::${turn + 1}`)
    }
    expect((await signInAs(server, own, PASSWORD, '2001:db8:7:7::99')).status).toBe(200)
    await signInAs(server, newEmail(), 'wrong', '2001:db8:7:7::ffff')
    expect((await signInAs(server, email, PASSWORD, '2001:db8:7:7:1::1')).status).toBe(429)
    // Accounts that signed in here lately are not delayed by their neighbours.
    expect((await signInAs(server, own, PASSWORD, '2001:db8:7:7::5')).status).toBe(200)
    expect((await signInAs(server, email, PASSWORD, '2001:db8:7:8::1')).status).toBe(200)
    await server.close()
  })

  it('from many networks delay an account for a minute at most, and never where its owner signed in', async () => {
    const server = await start(HEADER)
    const { email } = await createUser(server)
    const home = '203.0.113.1'
    expect((await signInAs(server, email, PASSWORD, home)).status).toBe(200)
    for (let turn = 0; turn < 120; turn += 1) {
      const attack = await signInAs(server, email, 'wrong', `198.51.100.${turn}`)
      if (attack.status === 429) server.clock.advance(Number(attack.headers['retry-after']))
    }
    expect((await signInAs(server, email, 'wrong', '198.51.100.250')).status).toBeOneOf([400, 429])
    const elsewhere = await signInAs(server, email, PASSWORD, '192.0.2.200')
    expect(elsewhere.status).toBe(429)
    expect(Number(elsewhere.headers['retry-after'])).toBeLessThanOrEqual(60)
    expect((await signInAs(server, email, PASSWORD, home)).status).toBe(200)
    await server.close()
  })

  it('of one-time codes are delayed, across all codes that were sent', async () => {
    const server = await start({ MILLRACE_OTP_ATTEMPTS_MAX: '100' })
    const { email } = await createUser(server)
    const guess = (token: string) =>
      server.call({ method: 'POST', path: '/verify', body: { type: 'email', email, token } })
    for (let turn = 0; turn < 10; turn += 1) expect((await guess('000000')).status).toBe(403)
    await server.call({ method: 'POST', path: '/otp', body: { email } })
    const right = server.lastMail(email).variables.token ?? ''
    expect((await guess(right)).status).toBe(429)
    server.clock.advance(5)
    expect((await guess(right)).status).toBe(200)
    await server.close()
  })

  it('are counted by each process while Redis is away', async () => {
    const server = await start()
    const { email } = await createUser(server)
    server.redis.disconnect()
    for (let turn = 0; turn < 10; turn += 1) {
      expect((await signInAs(server, email, 'wrong')).status).toBe(400)
    }
    const refused = await signInAs(server, email, PASSWORD)
    expect(refused.status).toBe(429)
    server.clock.advance(Number(refused.headers['retry-after']))
    expect((await signInAs(server, email, PASSWORD)).status).toBe(200)
    await server.close()
  })
})
