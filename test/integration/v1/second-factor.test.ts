import { TOTP } from 'otpauth'
import { expect } from 'vitest'

import { jsonCallTo } from '#test/support/json-call.ts'
import { it } from '#test/support/services.ts'
import { startTiers } from '#test/support/tiers.ts'

const SIGNUP = { email: 'two@example.com', password: 'correct horse' }

it('keys, organizations and memberships change only by the second factor of a user that has one', {
  timeout: 120_000,
}, async ({ databaseUrl, redisUrl, keyPrefix, folder }) => {
  const env = { AUTH_MAILER_AUTOCONFIRM: 'true' }
  const tiers = await startTiers({ databaseUrl, redisUrl, keyPrefix, folder, env })
  const call = jsonCallTo(tiers.url)
  const signIn = async () =>
    (await call('POST', '/token?grant_type=password', undefined, SIGNUP)).body.access_token
  try {
    const weak = (await call('POST', '/signup', undefined, SIGNUP)).body.access_token as string
    const made = (await call('POST', '/v1/api_keys', weak, { name: 'early' })).body
    const { id: organization } = (await call('POST', '/v1/organizations', weak, { name: 'Mill' }))
      .body
    const { id, totp } = (await call('POST', '/factors', weak, { factor_type: 'totp' })).body
    // A factor that was not proven yet demands nothing.
    expect((await call('POST', '/v1/api_keys', weak, { name: 'still' })).status).toBe(200)
    const challenge = (await call('POST', `/factors/${id}/challenge`, weak, {})).body
    const code = new TOTP({ secret: totp.secret }).generate()
    const strong = (
      await call('POST', `/factors/${id}/verify`, weak, { challenge_id: challenge.id, code })
    ).body.access_token as string
    const changes = (bearer: string) =>
      Promise.all([
        call('POST', '/v1/api_keys', bearer, { name: 'x' }),
        call('POST', `/v1/api_keys/${made.id}/rotate`, bearer),
        call('PATCH', `/v1/organizations/${organization}`, bearer, { name: 'New' }),
        call('POST', '/v1/organizations', bearer, { name: 'Other' }),
        call('POST', `/v1/organizations/${organization}/invitations`, bearer, {
          email: 'a@b.test',
        }),
        call('POST', '/v1/invitations/inv_none/accept', bearer),
        call('DELETE', '/v1/api_keys/key_none', bearer),
      ])
    const password = await signIn()
    for (const { status, body } of await changes(password)) {
      expect([status, body.error.code]).toEqual([403, 'insufficient_aal'])
      expect(body.error.message).toContain('/factors/{id}/verify')
    }
    // Reading and using what is there goes on.
    for (const path of ['/v1/api_keys', '/v1/models', '/v1/organizations', '/v1/invitations']) {
      expect([path, (await call('GET', path, password)).status]).toEqual([path, 200])
    }
    const allowed = (await changes(strong)).map(({ status }) => status)
    expect(allowed.filter((status) => status === 403)).toEqual([])
    expect(allowed.slice(0, 4)).toEqual([200, 200, 200, 200])
  } finally {
    await tiers.stop()
  }
})
