import { SMTPServer, type SMTPServerOptions } from 'smtp-server'
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'

import { createMailer } from '#api/auth/delivery/mailer.ts'
import { systemClock } from '#shared/clock.ts'
import { createLogger } from '#shared/logger.ts'

import { readConfig } from './support/server.ts'

interface Delivery {
  readonly user: unknown
  readonly isEncrypted: boolean
}

const deliveries: Delivery[] = []
let signIns = 0

function createServer(options: SMTPServerOptions): SMTPServer {
  const server = new SMTPServer({
    onAuth({ username, password }, _session, done) {
      signIns += 1
      if (username === 'user' && password === 'secret') done(null, { user: username })
      else done(new Error('535 wrong'))
    },
    onData(stream, session, done) {
      stream.resume()
      stream.on('end', () => {
        deliveries.push({ user: session.user, isEncrypted: session.secure })
        done()
      })
    },
    ...options,
  })
  // Clients that hang up are none of its business.
  server.on('error', () => undefined)
  return server
}

// Its certificate is not trusted.
const encrypted = createServer({ allowInsecureAuth: false })
const plain = createServer({ allowInsecureAuth: true, disabledCommands: ['STARTTLS'] })

beforeAll(async () => {
  for (const server of [encrypted, plain]) {
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  }
})
beforeEach(() => {
  deliveries.length = 0
  signIns = 0
})
afterAll(async () => {
  for (const server of [encrypted, plain]) {
    await new Promise<void>((resolve) => server.close(() => resolve()))
  }
})

async function send(env: Record<string, string>, server = encrypted): Promise<void> {
  const { port } = server.server.address() as { port: number }
  const config = readConfig({
    AUTH_SITE_URL: 'https://app.test',
    AUTH_API_EXTERNAL_URL: 'https://auth.test',
    AUTH_JWT_SECRET: '37c304f8-51aa-419a-a1af-06154e63707a',
    // Leads here, and is not a loopback address.
    AUTH_SMTP_HOST: '0.0.0.0',
    AUTH_SMTP_PORT: String(port),
    AUTH_SMTP_ADMIN_EMAIL: 'admin@app.test',
    AUTH_SMTP_USER: 'user',
    AUTH_SMTP_PASS: 'secret',
    ...env,
  })
  const mailer = createMailer({
    smtp: config.smtp,
    mailer: config.mailer,
    siteUrl: config.site.url,
    clock: systemClock,
    log: createLogger({ level: 'silent' }),
  })
  const links = { confirmationUrl: 'https://auth.test/verify', redirectTo: 'https://app.test' }
  const codes = { token: '123456', tokenHash: 'h', data: {} }
  const variables = { siteUrl: 'https://app.test', email: 'ann@example.com', ...links, ...codes }
  try {
    await mailer.send({ kind: 'recovery', to: 'ann@example.com', variables })
  } finally {
    mailer.close()
  }
}

it('signs in at the mail server, encrypted', async () => {
  await send({ MILLRACE_SMTP_TLS_VERIFY: 'false' })
  expect(deliveries).toEqual([{ user: 'user', isEncrypted: true }])
})

it.each([
  ['the certificate is not trusted', {}],
  ['the password is wrong', { MILLRACE_SMTP_TLS_VERIFY: 'false', AUTH_SMTP_PASS: 'other' }],
])('fails with a code when %s', async (_name, env) => {
  await expect(send(env)).rejects.toMatchObject({ kind: 'internal', code: 'unexpected_failure' })
  expect(deliveries).toEqual([])
})

it('sends its password in clear text only to this machine', async () => {
  await expect(send({}, plain)).rejects.toMatchObject({ kind: 'internal' })
  expect(signIns).toBe(0)
  await send({ AUTH_SMTP_HOST: '127.0.0.1' }, plain)
  expect(deliveries).toEqual([{ user: 'user', isEncrypted: false }])
})
