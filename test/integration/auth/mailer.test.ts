import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { createMailer } from '#api/auth/delivery/mailer.ts'
import { systemClock } from '#shared/clock.ts'
import { MAIL_KINDS, readMailerConfig, readSmtpConfig } from '#shared/config/auth-mail.ts'
import { EnvReader } from '#shared/config/env-reader.ts'
import { createLogger } from '#shared/logger.ts'
import { startHttpPeer, type HttpPeer, type PeerReply } from '#test/support/http-peers.ts'
import { startMailCatcher, type MailCatcher } from '#test/support/mail-catcher.ts'

let mails: MailCatcher
let peer: HttpPeer
let reply: PeerReply
beforeAll(async () => {
  mails = await startMailCatcher()
  peer = await startHttpPeer(() => reply)
})
afterAll(async () => {
  await mails.stop()
  await peer.stop()
})

let numbers = 0
async function send(
  env: Record<string, string> = {},
  kind = 'confirmation' as (typeof MAIL_KINDS)[number],
) {
  const reader = new EnvReader({
    AUTH_SMTP_HOST: mails.host,
    AUTH_SMTP_PORT: String(mails.port),
    AUTH_SMTP_ADMIN_EMAIL: 'admin@mill.test',
    AUTH_SMTP_SENDER_NAME: 'Mill, the "Race"',
    MILLRACE_MAIL_TEMPLATES_ALLOW_PRIVATE: 'true',
    ...env,
  })
  const mailer = createMailer({
    ...{ smtp: readSmtpConfig(reader), mailer: readMailerConfig(reader) },
    ...{ siteUrl: 'https://site.test', clock: systemClock },
    log: createLogger({ level: 'silent' }),
  })
  numbers += 1
  const to = `user${numbers}@test.dev`
  const data = { name: '<i>Ann</i>\r\nBcc: evil@test.dev' }
  const confirmationUrl = 'https://auth.test/verify?token=h&type=signup'
  const variables = { siteUrl: 'https://site.test', email: to, newEmail: 'new@test.dev', data }
  const codes = { confirmationUrl, token: '123456', tokenHash: 'h', redirectTo: 'https://r.test' }
  try {
    await mailer.send({ kind, to, variables: { ...variables, ...codes } })
  } finally {
    mailer.close()
  }
  return mails.waitFor(to)
}

describe('a mail', () => {
  it.each(MAIL_KINDS)('of kind %s carries the code in both parts', async (kind) => {
    const mail = await send({}, kind)
    expect(mail.from).toMatchObject({ address: 'admin@mill.test', name: 'Mill, the "Race"' })
    for (const part of [mail.html, mail.text]) expect(part).toContain('123456')
    const link = 'https://auth.test/verify?token=h&type=signup'
    expect(mail.text?.includes(link)).toBe(kind !== 'reauthentication')
  })

  it('has a rendered subject on one line and further headers', async () => {
    const mail = await send({
      AUTH_MAILER_SUBJECTS_CONFIRMATION: 'Hello {{ .Data.name }}',
      AUTH_SMTP_HEADERS: '{"x-kind":["is $messageType"]}',
    })
    expect(mail.subject).toBe('Hello <i>Ann</i> Bcc: evil@test.dev')
    expect(mail.bcc).toBeUndefined()
    expect(mail.headers.find(({ key }) => key === 'x-kind')?.value).toBe('is confirm')
  })

  it('uses the template of the settings, with values escaped', async () => {
    reply = { body: '<p>{{ .Data.name }} {{ .TokenHash }} {{ .RedirectTo }}</p>' }
    const mail = await send({ AUTH_MAILER_TEMPLATES_CONFIRMATION: `${peer.url}/t.html` })
    expect(mail.html).toContain('<p>&#60;i&#62;Ann&#60;/i&#62;')
    expect(mail.html).toContain('h https://r.test</p>')
  })

  it.each([
    ['is missing', { status: 404, body: 'no' }, {}],
    ['is empty', { body: ' ' }, {}],
    ['is huge', { body: 'x'.repeat(300_000) }, {}],
    ['says what nobody understands', { body: '{{ template "x" }}' }, {}],
    [
      'is at a private address',
      { body: 'stolen' },
      { MILLRACE_MAIL_TEMPLATES_ALLOW_PRIVATE: 'false' },
    ],
  ] as [string, PeerReply, Record<string, string>][])(
    'has the built-in body when the template %s',
    async (_name, answer, env) => {
      reply = answer
      const mail = await send({ AUTH_MAILER_TEMPLATES_CONFIRMATION: `${peer.url}/t`, ...env })
      expect(mail.html).toContain('<h2>Confirm your email</h2>')
    },
  )

  it('that the server refuses is an error', async () => {
    mails.refuseAll(true)
    await expect(send()).rejects.toMatchObject({ kind: 'internal', code: 'unexpected_failure' })
    mails.refuseAll(false)
  })
})
