import { describe, expect } from 'vitest'

import { sweepEnded } from '#api/server/maintenance.ts'
import { openApiKeys } from '#shared/db/api-keys.ts'
import { ensureDefaultOrganization } from '#shared/db/organizations.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { it } from '#test/support/services.ts'

describe('the API keys of an organization', () => {
  it('are at most 10,000, as the refusal says, and revoking one makes room', async ({
    database,
  }) => {
    const tables = organizationTables('')
    const organizationId = await ensureDefaultOrganization(database.db, tables)
    const keys = openApiKeys(database.db, tables)
    await database.pool.query(
      `insert into api_keys (id, organization_id, name, secret_sha256, prefix)
       select 'key_' || n, $1, 'x', sha256(n::text::bytea), 'mr-' from generate_series(1, 10000) n`,
      [organizationId],
    )
    const create = () =>
      keys.create({ organizationId, name: 'x', scopes: null, modelIds: null, expiresAt: null })
    await expect(create()).rejects.toMatchObject({
      status: 400,
      code: 'too_many_api_keys',
      message: expect.stringMatching(/^An organization has at most 10000 API keys/),
    })
    await keys.revoke(organizationId, 'key_1')
    await create()
    await expect(create()).rejects.toMatchObject({ code: 'too_many_api_keys' })
    // Those that were revoked are rows, too, until they are old.
    await database.pool.query('update api_keys set revoked_at = now()')
    await expect(create()).rejects.toMatchObject({ code: 'too_many_api_keys' })
    await database.pool.query(`update api_keys set revoked_at = now() - interval '31 days'
      where id <> 'key_2'`)
    await sweepEnded(database.db, tables)
    const { rows } = await database.pool.query('select id from api_keys')
    expect(rows).toEqual([{ id: 'key_2' }])
    await create()
  })
})
