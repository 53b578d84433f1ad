import { createServer, type Server, type Socket } from 'node:net'

import { describe, expect } from 'vitest'

import { createMailer, type SmtpMailer } from '#api/auth/delivery/mailer.ts'
import type { MailVariables } from '#api/auth/ports.ts'
import { systemClock } from '#shared/clock.ts'
import { MAIL_KINDS } from '#shared/config/auth-mail.ts'
import { createLogger } from '#shared/logger.ts'
import type { MailCatcher } from '#test/support/mail-catcher.ts'
import { it } from '#test/support/services.ts'

import { readConfig } from './support/server.ts'

const LINK = 'https://auth.test/verify?token=abc&type=signup&redirect_to=https://app.test/'
const VARIABLES: MailVariables = {
  siteUrl: 'https://app.test',
  email: 'ann@example.com',
  newEmail: 'anna@example.com',
  confirmationUrl: LINK,
  token: '123456',
  tokenHash: 'abc',
  redirectTo: 'https://app.test/',
  data: {},
}

function open(
  mail: Pick<MailCatcher, 'host' | 'port'>,
  env: Record<string, string> = {},
  deliveryTimeoutMs = 5_000,
  log = createLogger({ level: 'silent' }),
) {
  const config = readConfig({
    AUTH_SITE_URL: 'https://app.test',
    AUTH_API_EXTERNAL_URL: 'https://auth.test',
    AUTH_JWT_SECRET: '37c304f8-51aa-419a-a1af-06154e63707a',
    AUTH_SMTP_HOST: mail.host,
    AUTH_SMTP_PORT: String(mail.port),
    AUTH_SMTP_ADMIN_EMAIL: 'admin@app.test',
    ...env,
  })
  return createMailer({
    ...config,
    siteUrl: config.site.url,
    deliveryTimeoutMs,
    clock: systemClock,
    log,
  })
}

async function closing(mailer: SmtpMailer, act: (mailer: SmtpMailer) => Promise<void>) {
  try {
    await act(mailer)
  } finally {
    mailer.close()
  }
}

describe('a mail', () => {
  it.for([
    ['invite', 'You have been invited'],
    ['confirmation', 'Confirm Your Signup'],
    ['recovery', 'Reset Your Password'],
    ['magicLink', 'Your Magic Link'],
    ['emailChange', 'Confirm Email Change'],
    ['reauthentication', 'Confirm reauthentication'],
  ] as const)(
    'of kind %s has its subject, link and code in both parts',
    async ([kind, subject], { mail }) => {
      await closing(open(mail, { AUTH_SMTP_SENDER_NAME: 'App, Inc.' }), async (mailer) => {
        await mailer.send({ kind, to: 'ann@example.com', variables: VARIABLES })
        const sent = await mail.waitFor('ann@example.com')
        expect(sent.subject).toBe(subject)
        expect(sent.from).toMatchObject({ name: 'App, Inc.', address: 'admin@app.test' })
        expect(sent.html).toContain('123456')
        expect(sent.text).toContain('123456')
        if (kind === 'reauthentication') return
        expect(sent.html).toContain(`href="${LINK.replaceAll('&', '&#38;')}"`)
        expect(sent.text).toContain(LINK)
      })
      expect(MAIL_KINDS).toContain(kind)
    },
  )

  it('fills subjects, and cannot be given further headers or recipients', async ({ mail }) => {
    const env = { AUTH_MAILER_SUBJECTS_CONFIRMATION: 'Hi {{ .Data.name }} & {{ .Email }}' }
    await closing(open(mail, env), async (mailer) => {
      const data = { name: 'Ann <b>\r\nBcc: evil@example.com\r\n\r\nbody' }
      const to = 'ann@example.com,evil@example.com'
      const failed = mailer.send({ kind: 'confirmation', to, variables: VARIABLES })
      await failed.catch(() => undefined)
      await mailer.send({
        kind: 'confirmation',
        to: 'bob@example.com',
        variables: { ...VARIABLES, data },
      })
      const sent = await mail.waitFor('bob@example.com')
      expect(sent.subject).toBe('Hi Ann <b> Bcc: evil@example.com body & ann@example.com')
      expect(sent.bcc ?? []).toEqual([])
      const names = sent.headers.map(({ key }) => key)
      expect(names).not.toContain('bcc')
      const reached = mail.received.flatMap(({ to: list }) => list?.map(({ address }) => address))
      expect(reached).not.toContain('evil@example.com')
    })
  })

  it('cuts a subject that is too long between two characters', async ({ mail }) => {
    const env = { AUTH_MAILER_SUBJECTS_CONFIRMATION: `a${'🎉'.repeat(300)}` }
    await closing(open(mail, env), async (mailer) => {
      await mailer.send({ kind: 'confirmation', to: 'ann@example.com', variables: VARIABLES })
      expect((await mail.waitFor('ann@example.com')).subject).toBe(`a${'🎉'.repeat(199)}`)
    })
  })

  it('carries the headers of the settings', async ({ mail }) => {
    const env = { AUTH_SMTP_HEADERS: '{"X-Kind":["$messageType"],"X-Tag":["one","two"]}' }
    await closing(open(mail, env), async (mailer) => {
      await mailer.send({ kind: 'magicLink', to: 'ann@example.com', variables: VARIABLES })
      const { headers } = await mail.waitFor('ann@example.com')
      const values = (name: string) =>
        headers.filter(({ key }) => key === name).map(({ value }) => value)
      expect(values('x-kind')).toEqual(['magiclink'])
      expect(values('x-tag')).toEqual(['one', 'two'])
    })
  })

  it('is dropped with a warning if no mail server is set', async ({ log }) => {
    const warnings: unknown[] = []
    const warn = (fields: object, message: string) => warnings.push({ ...fields, message })
    await closing(open({ host: '', port: 1 }, {}, 5_000, { ...log, warn }), async (mailer) => {
      await mailer.send({ kind: 'invite', to: 'ann@example.com', variables: VARIABLES })
    })
    expect(warnings).toEqual([
      {
        operation: 'mail.send',
        kind: 'invite',
        message: 'no mail server is set; the mail was dropped',
      },
    ])
  })
})

describe('a mail server', () => {
  const failed = { kind: 'internal', code: 'unexpected_failure', message: 'Error sending email' }
  const send = (mailer: SmtpMailer) =>
    mailer.send({ kind: 'recovery', to: 'ann@example.com', variables: VARIABLES })

  it('that refuses a mail counts as a failure with a code, and works again later', async ({
    mail,
  }) => {
    await closing(open(mail), async (mailer) => {
      mail.refuseAll(true)
      await expect(send(mailer)).rejects.toMatchObject(failed)
      mail.refuseAll(false)
      await send(mailer)
      await mail.waitFor('ann@example.com')
    })
  })

  it('that is unreachable counts as a failure with a code', async ({ mail }) => {
    await mail.stop()
    await closing(open(mail), (mailer) => expect(send(mailer)).rejects.toMatchObject(failed))
  })

  it('that does not answer, or answers byte by byte, is abandoned', async () => {
    for (const greet of [() => undefined, drip]) {
      const silent = await listen(greet)
      const address = { host: '127.0.0.1', port: silent.port }
      await closing(open(address, {}, 300), async (mailer) => {
        const all = await Promise.allSettled(Array.from({ length: 8 }, () => send(mailer)))
        for (const result of all) {
          expect(result).toMatchObject({ status: 'rejected', reason: failed })
        }
      })
      await silent.stop()
    }
    // Far less than the single steps of SMTP may take.
  }, 4_500)
})

function drip(socket: Socket): void {
  const timer = setInterval(() => socket.write('220-wait\r\n'), 200)
  socket.on('close', () => clearInterval(timer))
}

async function listen(greet: (socket: Socket) => void) {
  const sockets = new Set<Socket>()
  const server: Server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => undefined)
    greet(socket)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    port: (server.address() as { port: number }).port,
    stop: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve())
        for (const socket of sockets) socket.destroy()
      }),
  }
}
