import { expect, it } from 'vitest'

import { createOutbox } from '#api/auth/delivery/outbox-sender.ts'

import { newEmail, PASSWORD } from './support/people.ts'
import { type SentMail, startServer } from './support/server.ts'

const rejected = Object.assign(new Error('no such mailbox'), { responseCode: 550 })
const unavailable = Object.assign(new Error('connect ECONNREFUSED 127.0.0.1:25'), {
  code: 'ESOCKET',
})

async function startBroken(error: Error) {
  const state = { error: error as Error | undefined, sent: [] as SentMail[] }
  const server = await startServer({
    isFrozen: true,
    mailer: {
      async send(mail) {
        if (state.error !== undefined) throw state.error
        state.sent.push(mail)
      },
    },
  })
  const email = newEmail()
  const signUp = { method: 'POST', path: '/signup', body: { email, password: PASSWORD } } as const
  expect((await server.call(signUp)).status).toBe(200)
  return { server, state, email }
}

it('delivers the waiting messages of another process, once', async () => {
  const { server, state, email } = await startBroken(unavailable)
  expect(await server.services.outbox.state()).toMatchObject({
    waiting: 1,
    failing: 1,
    lastError: 'ESOCKET connect ECONNREFUSED 127.0.0.1:25',
  })
  server.clock.advance(10)
  state.error = undefined
  const { store, clock, log, config, sms, hooks } = server.services
  const mailer = { send: async (mail: SentMail) => void state.sent.push(mail) }
  const sender = { ...sms, send: async () => ({ messageId: '' }) }
  const options = { store, clock, log, hooks, mailer, sms: sender, secret: config.jwt.secret }
  const others = [createOutbox(options), createOutbox(options)]
  for (const other of others) other.start()
  await Promise.all(others.map((other) => other.idle()))
  expect(state.sent.map(({ to }) => to)).toEqual([email])
  await Promise.all(others.map((other) => other.close()))
  expect(await server.services.outbox.state()).toMatchObject({ waiting: 0 })
  await server.close()
})

it('does not send a message whose token has expired', async () => {
  const { server, state } = await startBroken(unavailable)
  server.clock.advance(86_401)
  state.error = undefined
  server.services.outbox.start()
  await server.services.outbox.idle()
  expect(state.sent).toEqual([])
  expect(await server.services.outbox.state()).toMatchObject({ waiting: 0 })
  await server.close()
})

it('drops a message that the mail server refuses permanently', async () => {
  const { server } = await startBroken(rejected)
  expect(await server.services.outbox.state()).toMatchObject({ waiting: 0 })
  await server.close()
})

it('keeps neither addresses nor codes in clear text while a message waits', async () => {
  const { server, email } = await startBroken(unavailable)
  const { rows } = await server.database.pool.query('select * from outbox_messages')
  expect(rows).toHaveLength(1)
  expect(JSON.stringify({ ...rows[0], content: rows[0].content.toString('latin1') })).not.toContain(
    email,
  )
  await server.close()
})
