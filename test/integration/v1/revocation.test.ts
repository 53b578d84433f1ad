import { expect } from 'vitest'

import { openApiKeys } from '#shared/db/api-keys.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { it } from '#test/support/services.ts'
import { startTiers } from '#test/support/tiers.ts'

// Each refusal of one process counts as a guess while the other one still knows the key.
const PATIENT = { interval: 250 }

it('a key that is revoked, rotated or whose time is over is dead soon in every process', {
  timeout: 120_000,
}, async ({ database, databaseUrl, redisUrl, keyPrefix, folder }) => {
  const tiers = await startTiers({ databaseUrl, redisUrl, keyPrefix, folder })
  try {
    const urls = [tiers.url, (await tiers.startApi()).url]
    const call = (url: string, secret: string, method = 'GET', path = '/models', body?: object) =>
      fetch(`${url}/v1${path}`, {
        method,
        headers: {
          authorization: `Bearer ${secret}`,
          ...(body !== undefined && { 'content-type': 'application/json' }),
        },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      })
    const statuses = (secret: string) =>
      Promise.all(urls.map(async (url) => (await call(url, secret)).status))
    const make = async (more: object = {}) => {
      const body = { name: 'x', ...more }
      const made = await call(tiers.url, tiers.apiKey, 'POST', '/api_keys', body)
      return (await made.json()) as { id: string; secret: string }
    }
    const kill: Record<string, (id: string) => Promise<unknown>> = {
      revoked: (id) => call(tiers.url, tiers.apiKey, 'DELETE', `/api_keys/${id}`),
      'revoked in the other process': (id) =>
        call(urls[1] as string, tiers.apiKey, 'DELETE', `/api_keys/${id}`),
      rotated: (id) => call(tiers.url, tiers.apiKey, 'POST', `/api_keys/${id}/rotate`),
      'revoked in the database': async (id) => {
        const keys = openApiKeys(database.db, organizationTables(''))
        const { rows } = await database.pool.query<{ organization_id: string }>(
          'select organization_id from api_keys where id = $1',
          [id],
        )
        expect(await keys.revoke(rows[0]?.organization_id ?? '', id)).toBe(true)
      },
    }
    // Its time is over at the end of the others'.
    const short = await make({ expires_at: Math.floor(Date.now() / 1000) + 8 })
    expect(await statuses(short.secret)).toEqual([200, 200])
    for (const [how, end] of Object.entries(kill)) {
      const { id, secret } = await make()
      // Both processes know the key at the moment of its end.
      expect([how, await statuses(secret)]).toEqual([how, [200, 200]])
      await end(id)
      await expect.poll(() => statuses(secret), { ...PATIENT, message: how }).toEqual([401, 401])
    }
    await expect.poll(() => statuses(short.secret), PATIENT).toEqual([401, 401])
  } finally {
    await tiers.stop()
  }
})
