import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { failure } from '#shared/errors.ts'

import { createUser, newEmail, PASSWORD } from './support/people.ts'
import { type CallResult, startServer, type TestServer } from './support/server.ts'

let server: TestServer
let known: string
let isMailDead = false

beforeAll(async () => {
  server = await startServer({
    mailer: {
      async send() {
        if (isMailDead) throw failure.internal('Error sending email')
      },
    },
  })
  known = (await createUser(server)).email
})

afterAll(() => server.close())

const post = (path: string, body: object): Promise<CallResult> =>
  server.call({ method: 'POST', path, body })

describe('a known and an unknown address', () => {
  it('get the same answer to a password', async () => {
    const body = { password: 'not the password' }
    const [a, b] = [
      await post('/token?grant_type=password', { ...body, email: known }),
      await post('/token?grant_type=password', { ...body, email: newEmail() }),
    ]
    expect(a.body).toEqual({
      code: 400,
      error_code: 'invalid_credentials',
      msg: 'Invalid login credentials',
    })
    expect(b.body).toEqual(a.body)
  })

  it('cost one verification each, so that their time is the same', async () => {
    const { passwords } = server.services
    const hashes: (string | undefined)[] = []
    const { verify } = passwords
    passwords.verify = (password, hash) => {
      hashes.push(hash)
      return verify(password, hash)
    }
    await post('/token?grant_type=password', { email: known, password: 'x' })
    await post('/token?grant_type=password', { email: newEmail(), password: 'x' })
    passwords.verify = verify
    expect(hashes).toEqual([expect.stringMatching(/^\$argon2id\$/), undefined])
  })

  it('get the same answers to two recoveries in a row', async () => {
    const unknown = newEmail()
    for (const status of [200, 429]) {
      const [a, b] = [
        await post('/recover', { email: known }),
        await post('/recover', { email: unknown }),
      ]
      expect(a.status).toBe(status)
      expect(strip(b)).toEqual(strip(a))
    }
  })

  it('get the same shape of answers to two sign-ups in a row', async () => {
    const taken = (await createUser(server)).email
    const free = newEmail()
    for (const status of [200, 429]) {
      const [a, b] = [
        await post('/signup', { email: taken, password: PASSWORD, data: { a: 1 } }),
        await post('/signup', { email: free, password: PASSWORD, data: { a: 1 } }),
      ]
      expect(a.status).toBe(status)
      expect(b.status).toBe(status)
      expect(Object.keys(a.body).sort()).toEqual(Object.keys(b.body).sort())
      if (status === 200) {
        expect(a.body.id).not.toBe(b.body.id)
        expect(Object.keys(a.body.user_metadata)).toEqual(Object.keys(b.body.user_metadata))
        expect([a.body.role, a.body.aud]).toEqual([b.body.role, b.body.aud])
        // The one difference that applications rely on.
        expect([a.body.identities.length, b.body.identities.length]).toEqual([0, 1])
      }
    }
  })

  it('get the same answer while no mail can be sent', async () => {
    isMailDead = true
    const other = await createUser(server)
    const [a, b] = [
      await post('/recover', { email: other.email }),
      await post('/recover', { email: newEmail() }),
    ]
    isMailDead = false
    expect(a.status).toBe(200)
    expect(strip(b)).toEqual(strip(a))
  })

  it('do not wait for the mail server', async () => {
    const sent = Promise.withResolvers<void>()
    const slow = await startServer({
      mailer: { send: () => sent.promise },
      waitsForMessages: false,
    })
    const { email } = await createUser(slow)
    for (const address of [email, newEmail()]) {
      const body = { email: address }
      const answer = await slow.call({ method: 'POST', path: '/recover', body })
      expect(answer).toMatchObject({ status: 200, body: {} })
    }
    sent.resolve()
    await slow.close()
  })
})

function strip(answer: CallResult): object {
  const { error_id: _id, ...body } = answer.body
  return { status: answer.status, body }
}
