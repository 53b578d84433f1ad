import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { newEmail, signedInUser } from './support/people.ts'
import { startServer, type CallResult, type TestServer } from './support/server.ts'

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
  it('changes nothing else that the request asks for', async () => {
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

describe('a change that cannot be sent', () => {
  it('does not wait for confirmation, and can be asked for again at once', async () => {
    let isDown = true
    const mailer = {
      send: async () => {
        if (isDown) throw new Error('451 not now')
      },
    }
    const broken = await startServer({ mailer, env: { AUTH_EXTERNAL_PHONE_ENABLED: 'true' } })
    const { access_token: bearer } = await signedInUser(broken)
    phones += 1
    const both = { email: newEmail('lost'), phone: `+${phones}` }
    const ask = () => broken.call({ method: 'PUT', path: '/user', bearer, body: both })
    expect((await ask()).body).toMatchObject({
      code: 500,
      msg: 'Error sending email change email',
    })
    const { body } = await broken.call({ path: '/user', bearer })
    expect(body).not.toHaveProperty('new_email')
    expect(body).not.toHaveProperty('email_change_sent_at')
    // The number that came with it was not asked for either.
    expect(body).not.toHaveProperty('new_phone')
    expect(body).not.toHaveProperty('phone_change_sent_at')
    expect(broken.messages).toEqual([])
    isDown = false
    expect((await ask()).status).toBe(200)
    await broken.close()
  })
})
