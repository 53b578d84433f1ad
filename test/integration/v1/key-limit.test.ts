import { describe, expect } from 'vitest'

import { openApiKeys } from '#shared/db/api-keys.ts'
import { ensureDefaultOrganization } from '#shared/db/organizations.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { it } from '#test/support/services.ts'

describe('the API keys of an organization', () => {
  it('are at most 10,000, which the refusal says, and a revoked one makes room', async ({
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
      message: 'An organization has at most 10000 API keys.',
    })
    await keys.revoke(organizationId, 'key_1')
    await create()
    await expect(create()).rejects.toMatchObject({ code: 'too_many_api_keys' })
  })
})
