import { AuthClient } from '@supabase/auth-js'
import { AuthClient as OldAuthClient } from '@supabase/auth-js-2-6x'
import { TOTP } from 'otpauth'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { type MailCatcher, startMailCatcher } from '#test/support/mail-catcher.ts'

import { startServer, type TestServer } from './support/server.ts'

const PASSWORD = 'correct horse'
const CLIENTS = [
  { name: 'the newest auth-js', Client: AuthClient },
  { name: 'auth-js 2.69', Client: OldAuthClient as unknown as typeof AuthClient },
]

let confirming: TestServer
let autoconfirming: TestServer
let mail: MailCatcher
let urls: { confirming: string; autoconfirming: string }

beforeAll(async () => {
  const common = {
    AUTH_SMTP_MAX_FREQUENCY: '0',
    AUTH_SMS_MAX_FREQUENCY: '0',
    AUTH_EXTERNAL_PHONE_ENABLED: 'true',
    AUTH_EXTERNAL_ANONYMOUS_USERS_ENABLED: 'true',
  }
  mail = await startMailCatcher()
  confirming = await startServer({ env: common, mailServer: mail })
  autoconfirming = await startServer({ env: { ...common, AUTH_MAILER_AUTOCONFIRM: 'true' } })
  urls = {
    confirming: await confirming.app.listen({ port: 0, host: '127.0.0.1' }),
    autoconfirming: await autoconfirming.app.listen({ port: 0, host: '127.0.0.1' }),
  }
})

afterAll(async () => {
  await confirming.close()
  await autoconfirming.close()
  await mail.stop()
})

for (const { name, Client } of CLIENTS) {
  describe(name, () => {
    const address = (local: string): string => `${local}.${name.replaceAll(/\W/g, '')}@example.com`
    const open = (
      url: string,
      options: Record<string, unknown> = {},
    ): InstanceType<typeof AuthClient> =>
      new Client({
        url: `${url}/auth/v1`,
        autoRefreshToken: false,
        persistSession: true,
        storage: memoryStorage(),
        detectSessionInUrl: false,
        ...options,
      })

    it('signs up and in at once if addresses need no confirmation', async () => {
      const client = open(urls.autoconfirming)
      const email = address('auto')
      const { data, error } = await client.signUp({ email, password: PASSWORD })
      expect(error).toBeNull()
      expect(data.session?.user.email).toBe(email)
      expect(data.user?.email_confirmed_at).toEqual(expect.any(String))
      const again = await client.signUp({ email, password: PASSWORD })
      expect(again.error).toMatchObject({ message: 'User already registered', status: 400 })
      expect(again.error?.code).toBe('user_already_exists')
    })

    it('signs up with confirmation, and is signed in by the code of the mail', async () => {
      const client = open(urls.confirming)
      const email = address('confirm')
      const { data } = await client.signUp({ email, password: PASSWORD })
      expect(data.session).toBeNull()
      expect(data.user?.identities).toHaveLength(1)
      expect((await client.signInWithPassword({ email, password: PASSWORD })).error?.code).toBe(
        'email_not_confirmed',
      )
      const { code: token } = await readMail(email)
      const verified = await client.verifyOtp({ type: 'email', email, token })
      expect(verified.error).toBeNull()
      expect(verified.data.session?.access_token).toEqual(expect.any(String))
      const repeated = await client.signUp({ email, password: PASSWORD })
      expect(repeated.error).toBeNull()
      expect(repeated.data.user?.identities).toEqual([])
    })

    it('signs in with a one-time code by phone', async () => {
      const client = open(urls.confirming)
      const phone = `+4179${Math.floor(1_000_000 + Math.random() * 8_999_999)}`
      const sent = await client.signInWithOtp({ phone })
      expect(sent.error).toBeNull()
      await confirming.services.outbox.idle()
      const { otp } = confirming.messages.at(-1) as { otp: string }
      const { data, error } = await client.verifyOtp({ phone, token: otp, type: 'sms' })
      expect(error).toBeNull()
      expect(data.user?.phone).toBe(phone.slice(1))
    })

    it('signs in with a magic link through PKCE', async () => {
      const client = open(urls.confirming, { flowType: 'pkce' })
      const email = address('pkce')
      const sent = await client.signInWithOtp({ email })
      expect(sent.error).toBeNull()
      const { link } = await readMail(email)
      expect(link.searchParams.get('token')).toMatch(/^pkce_[0-9a-f]{56}$/)
      const clicked = await confirming.call({ path: link.pathname + link.search })
      const code = new URL(clicked.location).searchParams.get('code') as string
      const { data, error } = await client.exchangeCodeForSession(code)
      expect(error).toBeNull()
      expect(data.user?.email).toBe(email)
      expect((await client.exchangeCodeForSession(code)).error).not.toBeNull()
    })

    it('refreshes, updates and signs out', async () => {
      const client = open(urls.autoconfirming)
      const email = address('life')
      await client.signUp({ email, password: PASSWORD })
      const before = (await client.getSession()).data.session
      const refreshed = await client.refreshSession()
      expect(refreshed.error).toBeNull()
      expect(refreshed.data.session?.refresh_token).not.toBe(before?.refresh_token)
      const updated = await client.updateUser({ data: { nick: 'a' }, password: 'another one' })
      expect(updated.error).toBeNull()
      expect(updated.data.user?.user_metadata).toMatchObject({ nick: 'a' })
      expect((await client.getUser()).data.user?.email).toBe(email)
      expect((await client.signOut()).error).toBeNull()
      const signedIn = await client.signInWithPassword({ email, password: 'another one' })
      expect(signedIn.error).toBeNull()
    })

    it('reads claims from the access token', async () => {
      const client = open(urls.autoconfirming)
      await client.signUp({ email: address('claims'), password: PASSWORD })
      const { data, error } = await client.getClaims()
      expect(error).toBeNull()
      expect(data?.claims).toMatchObject({ aal: 'aal1', is_anonymous: false })
    })

    it('lets an anonymous user become a permanent one', async () => {
      const client = open(urls.autoconfirming)
      const { data, error } = await client.signInAnonymously({ options: { data: { a: 1 } } })
      expect(error).toBeNull()
      expect(data.user).toMatchObject({ is_anonymous: true, user_metadata: { a: 1 } })
      const email = address('anon')
      const updated = await client.updateUser({ email })
      expect(updated.error).toBeNull()
      expect(updated.data.user).toMatchObject({ email, is_anonymous: false })
    })

    it('adds a second factor and rises to the second level', async () => {
      const client = open(urls.autoconfirming)
      await client.signUp({ email: address('mfa'), password: PASSWORD })
      const enrolled = await client.mfa.enroll({ factorType: 'totp', friendlyName: 'phone' })
      expect(enrolled.error).toBeNull()
      const { id: factorId, totp } = enrolled.data as {
        id: string
        totp: { secret: string; qr_code: string; uri: string }
      }
      expect(totp.qr_code).toMatch(/^data:image\/svg\+xml;utf-8,<svg/)
      expect(totp.uri).toMatch(/^otpauth:\/\/totp\/localhost%3A3000:mfa/)
      const code = new TOTP({ secret: totp.secret }).generate()
      const verified = await client.mfa.challengeAndVerify({ factorId, code })
      expect(verified.error).toBeNull()
      const level = await client.mfa.getAuthenticatorAssuranceLevel()
      expect(level.data).toMatchObject({ currentLevel: 'aal2', nextLevel: 'aal2' })
      expect((await client.mfa.listFactors()).data?.totp).toHaveLength(1)
      expect((await client.mfa.unenroll({ factorId })).error).toBeNull()
    })

    it('administers users', async () => {
      const bearer = await autoconfirming.serviceToken()
      const client = open(urls.autoconfirming, { headers: { Authorization: `Bearer ${bearer}` } })
      const email = address('admin')
      const created = await client.admin.createUser({
        email,
        password: PASSWORD,
        user_metadata: { plan: 'free' },
        app_metadata: { tier: 1 },
      })
      expect(created.error).toBeNull()
      const id = created.data.user?.id as string
      expect(created.data.user?.user_metadata).toEqual({ plan: 'free' })
      const listed = await client.admin.listUsers({ page: 1, perPage: 2 })
      expect(listed.error).toBeNull()
      expect(listed.data.users).toHaveLength(2)
      const updated = await client.admin.updateUserById(id, {
        email_confirm: true,
        ban_duration: '1h',
      })
      expect(updated.data.user).toMatchObject({ banned_until: expect.any(String) })
      const link = await client.admin.generateLink({ type: 'recovery', email })
      expect(link.data.properties).toMatchObject({
        verification_type: 'recovery',
        action_link: expect.stringContaining('/verify?token='),
      })
      expect((await client.admin.deleteUser(id)).error).toBeNull()
      expect((await client.admin.getUserById(id)).error).toMatchObject({ status: 404 })
      const invited = await client.admin.inviteUserByEmail(address('invited'))
      expect(invited.data.user?.invited_at).toEqual(expect.any(String))
    })
  })
}

async function readMail(email: string): Promise<{ code: string; link: URL }> {
  const { html = '' } = await mail.waitFor(email)
  const link = /href="([^"]+)"/.exec(html)?.[1]?.replaceAll(/&(amp|#38);/g, '&') ?? ''
  const code = /\b\d{6}\b/.exec(html.replaceAll(/<[^>]+>/g, ' '))?.[0] ?? ''
  return { code, link: new URL(link) }
}

function memoryStorage() {
  const entries = new Map<string, string>()
  return {
    getItem: (key: string) => entries.get(key) ?? null,
    setItem: (key: string, value: string) => void entries.set(key, value),
    removeItem: (key: string) => void entries.delete(key),
  }
}
