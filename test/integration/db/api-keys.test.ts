import { describe, expect } from 'vitest'

import { ensureBootstrapKey, hashSecret, openApiKeys } from '#shared/db/api-keys.ts'
import type { Database } from '#shared/db/client.ts'
import { ensureDefaultOrganization, membershipsOf } from '#shared/db/organizations.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { it } from '#test/support/services.ts'

const tables = organizationTables('')
const USER = '7a1b0b0e-3c3e-4c58-9d0a-0f6f5f1f7a11'

describe('an API key', () => {
  it('is found by the hash of its secret and by nothing that is stored', async ({ database }) => {
    const { keys, organizationId } = await openKeys(database)
    const { key, secret } = await keys.create(request(organizationId))
    expect(secret).toMatch(/^mr-[A-Za-z0-9_-]{43}$/)
    expect(key.prefix).toBe(secret.slice(0, 10))
    expect((await keys.findBySecretHash(hashSecret(secret)))?.id).toBe(key.id)
    const { rows } = await database.pool.query('select * from api_keys')
    expect(JSON.stringify(rows)).not.toContain(secret.slice(11))
  })

  it('is gone for its organization once it is revoked, and cannot be revoked by another', async ({
    database,
  }) => {
    const { keys, organizationId } = await openKeys(database)
    const { key, secret } = await keys.create(request(organizationId))
    expect(await keys.revoke('org-another', key.id)).toBe(false)
    expect(await keys.revoke(organizationId, key.id)).toBe(true)
    expect(await keys.revoke(organizationId, key.id)).toBe(false)
    expect(await keys.findBySecretHash(hashSecret(secret))).toBeUndefined()
    expect(await keys.list(organizationId)).toEqual([])
  })

  it('of an anonymous user works only while anonymous users may create keys', async ({
    database,
  }) => {
    const { keys, organizationId } = await openKeys(database)
    const { key, secret } = await keys.create({ ...request(organizationId), createdBy: USER })
    const hash = hashSecret(secret)
    const allowing = openApiKeys(database.db, tables, { mayCreateKeys: true })
    await database.pool.query(
      'insert into users (id, is_anonymous, created_at, updated_at) values ($1, true, now(), now())',
      [USER],
    )
    expect(await keys.findBySecretHash(hash)).toBeUndefined()
    expect((await allowing.findBySecretHash(hash))?.id).toBe(key.id)
    // The user has become one with an account.
    await database.pool.query('update users set is_anonymous = false')
    expect((await keys.findBySecretHash(hash))?.id).toBe(key.id)
  })

  it('from the operator is created once, however many processes start', async ({ database }) => {
    await Promise.all(
      Array.from({ length: 8 }, () => ensureBootstrapKey(database.db, tables, 'a-given-secret')),
    )
    const keys = openApiKeys(database.db, tables)
    const key = await keys.findBySecretHash(hashSecret('a-given-secret'))
    expect(await keys.list(key?.organizationId ?? '')).toHaveLength(1)
  })
})

it('gives every user one personal organization, however many requests arrive at once', async ({
  database,
}) => {
  const all = await Promise.all(
    Array.from({ length: 8 }, () => membershipsOf(database.db, tables, USER)),
  )
  expect(new Set(all.map((memberships) => JSON.stringify(memberships))).size).toBe(1)
  expect(all[0]).toMatchObject([{ role: 'owner' }])
})

async function openKeys(database: Database) {
  const organizationId = await ensureDefaultOrganization(database.db, tables)
  return { keys: openApiKeys(database.db, tables), organizationId }
}

function request(organizationId: string) {
  return { organizationId, name: 'a key', scopes: null, modelIds: null, expiresAt: null }
}
