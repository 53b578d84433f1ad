import { SignJWT } from 'jose'
import { expect } from 'vitest'

import { jsonCallTo } from '#test/support/json-call.ts'
import { it } from '#test/support/services.ts'
import { apiEnv, startTiers } from '#test/support/tiers.ts'

interface SignedIn {
  readonly access_token: string
  readonly user: { readonly id: string }
}

it('a deleted, banned or signed-out user does no more than a remaining access token allows', {
  timeout: 120_000,
}, async ({ databaseUrl, redisUrl, keyPrefix, folder }) => {
  const env = { AUTH_MAILER_AUTOCONFIRM: 'true' }
  const tiers = await startTiers({ databaseUrl, redisUrl, keyPrefix, folder, env })
  const secret = new TextEncoder().encode(apiEnv(databaseUrl, 1).AUTH_JWT_SECRET)
  const service = await new SignJWT({ role: 'service_role' })
    .setProtectedHeader({ alg: 'HS256' })
    .sign(secret)
  const call = jsonCallTo(tiers.url)
  const newUser = async (email: string) => {
    const signup = { email, password: 'correct horse' }
    const { access_token: token, user } = (await call('POST', '/signup', undefined, signup))
      .body as SignedIn
    const key = (await call('POST', '/v1/api_keys', token, { name: 'x' })).body.secret as string
    const statuses = async () => [
      (await call('GET', '/v1/models', key)).status,
      (await call('GET', '/v1/models', token)).status,
      (await call('POST', '/v1/api_keys', token, { name: 'y' })).status,
      (await call('POST', '/v1/organizations', token, { name: 'y' })).status,
    ]
    expect(await statuses()).toEqual([200, 200, 200, 200])
    return { path: `/admin/users/${user.id}`, token, statuses }
  }
  const becomes = (statuses: () => Promise<number[]>, expected: readonly number[]) =>
    expect.poll(statuses).toEqual(expected)
  try {
    const out = await newUser('out@example.com')
    expect((await call('POST', '/logout', out.token)).status).toBe(204)
    await becomes(out.statuses, [200, 200, 401, 401])
    const banned = await newUser('banned@example.com')
    await call('PUT', banned.path, service, { ban_duration: '1h' })
    await becomes(banned.statuses, [401, 403, 403, 403])
    await call('PUT', banned.path, service, { ban_duration: 'none' })
    await becomes(banned.statuses, [200, 200, 200, 200])
    const deleted = await newUser('deleted@example.com')
    await call('DELETE', deleted.path, service)
    await becomes(deleted.statuses, [401, 401, 401, 401])
    const veiled = await newUser('veiled@example.com')
    await call('DELETE', veiled.path, service, { should_soft_delete: true })
    await becomes(veiled.statuses, [401, 401, 401, 401])
  } finally {
    await tiers.stop()
  }
})
