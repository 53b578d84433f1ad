import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'

import { createMailer } from '#api/auth/delivery/mailer.ts'
import { createLogger } from '#shared/logger.ts'
import { createGuardedFetch } from '#shared/net/guarded-fetch.ts'
import { type HttpPeer, type PeerReply, startHttpPeer } from '#test/support/http-peers.ts'
import { type MailCatcher, startMailCatcher } from '#test/support/mail-catcher.ts'

import { readConfig } from './support/server.ts'

let mails: MailCatcher
let peer: HttpPeer
let reply: PeerReply
let nowMs = 0
let numbers = 0

beforeAll(async () => {
  mails = await startMailCatcher()
  peer = await startHttpPeer(() => reply)
})
beforeEach(() => {
  reply = { body: '<p>Hello {{ .Data.name }}: {{ .TokenHash }} {{ .RedirectTo }}</p>' }
})
afterAll(async () => {
  await mails.stop()
  await peer.stop()
})

function open(env: Record<string, string> = {}) {
  const config = readConfig({
    AUTH_SITE_URL: peer.url,
    AUTH_API_EXTERNAL_URL: 'https://auth.test',
    AUTH_JWT_SECRET: '37c304f8-51aa-419a-a1af-06154e63707a',
    AUTH_SMTP_HOST: mails.host,
    AUTH_SMTP_PORT: String(mails.port),
    AUTH_SMTP_ADMIN_EMAIL: 'admin@mill.test',
    AUTH_MAILER_TEMPLATES_CONFIRMATION: `${peer.url}/mails/confirm.html`,
    MILLRACE_MAIL_TEMPLATES_ALLOW_PRIVATE: 'true',
    ...env,
  })
  const { allowsPrivateTemplateHosts } = config.mailer
  return createMailer({
    smtp: config.smtp,
    mailer: config.mailer,
    siteUrl: config.site.url,
    clock: { now: () => nowMs, monotonic: () => nowMs },
    log: createLogger({ level: 'silent' }),
    fetch: createGuardedFetch({
      timeoutMs: 300,
      bodyBytesMax: 262_144,
      redirectsMax: 3,
      allowsPrivateAddresses: allowsPrivateTemplateHosts,
    }),
  })
}

async function sendWith(mailer: ReturnType<typeof open>) {
  numbers += 1
  const to = `user${numbers}@test.dev`
  const links = { confirmationUrl: 'https://auth.test/verify', redirectTo: 'https://r.test' }
  const data = { name: '<i>Ann</i>' }
  const codes = { token: '123456', tokenHash: 'hash' }
  const variables = { siteUrl: peer.url, email: to, data, ...links, ...codes }
  await mailer.send({ kind: 'confirmation', to, variables })
  return mails.waitFor(to)
}

async function send(env: Record<string, string> = {}) {
  const mailer = open(env)
  try {
    return await sendWith(mailer)
  } finally {
    mailer.close()
  }
}

describe('a template of the settings', () => {
  it('is filled in, and the values from users are escaped', async () => {
    const mail = await send()
    expect(mail.html).toContain('<p>Hello &#60;i&#62;Ann&#60;/i&#62;: hash https://r.test</p>')
    expect(mail.text).toContain('Hello <i>Ann</i>: hash https://r.test')
  })

  it('is read below the site if it is a path', async () => {
    const mail = await send({ AUTH_MAILER_TEMPLATES_CONFIRMATION: '/mails/other.html' })
    expect(mail.html).toContain('hash https://r.test')
    expect(peer.requests.at(-1)?.path).toBe('/mails/other.html')
  })

  it('is cached for some time, and so is its absence', async () => {
    const mailer = open({ MILLRACE_MAIL_TEMPLATE_CACHE: '10' })
    const before = peer.requests.length
    const fetched = () => peer.requests.length - before
    await Promise.all([sendWith(mailer), sendWith(mailer), sendWith(mailer)])
    expect(fetched()).toBe(1)
    nowMs += 10_000
    reply = { status: 500, body: 'down' }
    expect((await sendWith(mailer)).html).toContain('Confirm your email')
    await sendWith(mailer)
    expect(fetched()).toBe(2)
    nowMs += 10_000
    reply = { body: 'back again' }
    expect((await sendWith(mailer)).html).toContain('back again')
    mailer.close()
  })
})

describe('the built-in body takes its place when it', () => {
  it.each<[string, PeerReply, Record<string, string>]>([
    ['is missing', { status: 404, body: 'no' }, {}],
    ['is empty', { body: ' ' }, {}],
    ['is huge', { body: 'x'.repeat(300_000) }, {}],
    ['never comes', 'hang', {}],
    ['says what nobody understands', { body: '{{ template "x" }}' }, {}],
    ['names a variable that there is not', { body: '{{ .Password }}' }, {}],
    ['leads elsewhere', { status: 302, headers: { location: 'file:///etc/passwd' }, body: '' }, {}],
    ['is at a private address', { body: 'x' }, { MILLRACE_MAIL_TEMPLATES_ALLOW_PRIVATE: 'false' }],
    ['is not an address', { body: 'x' }, { AUTH_MAILER_TEMPLATES_CONFIRMATION: 'http://' }],
  ])('%s', async (_name, answer, env) => {
    reply = answer
    const mail = await send(env)
    expect(mail.html).toContain('<h2>Confirm your email</h2>')
    expect(mail.html).toContain('href="https://auth.test/verify"')
    expect(mail.html).toContain('123456')
  })

  it('is not sent when only the subject cannot be rendered', async () => {
    const mail = await send({ AUTH_MAILER_SUBJECTS_CONFIRMATION: 'Hi {{ range .Data }}' })
    expect(mail.subject).toBe('Hi {{ range .Data }}')
    expect(mail.html).toContain('hash https://r.test')
  })
})
