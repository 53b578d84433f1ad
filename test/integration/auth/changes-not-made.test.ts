import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import type { SmsSender } from '#api/auth/ports.ts'
import { failure } from '#shared/errors.ts'

import { newEmail, signedInUser } from './support/people.ts'
import { type CallResult, startServer, type TestServer } from './support/server.ts'

let server: TestServer
let phones = 41791000000

beforeAll(async () => {
  server = await startServer({
    isFrozen: true,
    env: { AUTH_EXTERNAL_PHONE_ENABLED: 'true' },
  })
})

afterAll(() => server.close())

const update = (bearer: string, body: object): Promise<CallResult> =>
  server.call({ method: 'PUT', path: '/user', bearer, body })

describe('a change that comes too soon', () => {
  it('changes nothing else in the request', async () => {
    const { access_token: bearer } = await signedInUser(server)
    phones += 1
    const email = newEmail('first')
    await update(bearer, { email, phone: `+${phones}` })
    const { body: before } = await server.call({ path: '/user', bearer })
    for (const contact of [{ email: newEmail('second') }, { phone: `+${phones}9` }]) {
      const answer = await update(bearer, { ...contact, data: { colour: 'red' } })
      expect(answer.status).toBe(429)
      expect((await server.call({ path: '/user', bearer })).body).toEqual(before)
    }
  })
})

describe('a change whose gateway is not set up', () => {
  it('changes nothing else in the request, and can be requested again at once', async () => {
    let isReady = false
    const sms: SmsSender = {
      requireGateway() {
        if (isReady) return
        throw failure.internal('Unable to get SMS provider', { code: 'unexpected_failure' })
      },
      send: async () => ({ messageId: 'SM' }),
      testOtp: () => undefined,
    }
    const broken = await startServer({ sms, env: { AUTH_EXTERNAL_PHONE_ENABLED: 'true' } })
    const { access_token: bearer } = await signedInUser(broken)
    phones += 1
    const both = { email: newEmail('lost'), phone: `+${phones}`, data: { colour: 'red' } }
    const ask = () => broken.call({ method: 'PUT', path: '/user', bearer, body: both })
    const { body: before } = await broken.call({ path: '/user', bearer })
    expect((await ask()).body).toMatchObject({ code: 500, msg: 'Unable to get SMS provider' })
    const { body } = await broken.call({ path: '/user', bearer })
    expect(body).toEqual(before)
    expect(body).not.toHaveProperty('new_email')
    expect(body).not.toHaveProperty('email_change_sent_at')
    expect(body).not.toHaveProperty('new_phone')
    expect(body).not.toHaveProperty('phone_change_sent_at')
    // The mail that came with the number was not sent either.
    expect(broken.mails).toEqual([])
    isReady = true
    expect((await ask()).status).toBe(200)
    await broken.close()
  })
})
