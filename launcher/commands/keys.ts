import { loadConfig, type Env } from '#shared/config/config.ts'
import { openApiKeys } from '#shared/db/api-keys.ts'
import { openDatabase } from '#shared/db/client.ts'
import { ensureDefaultOrganization } from '#shared/db/organizations.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { createLogger } from '#shared/logger.ts'

import { UsageError, type Arguments } from './usage.ts'

type Keys = ReturnType<typeof openApiKeys>
type Action = (keys: Keys, organizationId: string, args: Arguments) => Promise<void>

const ACTIONS: Readonly<Record<string, Action>> = {
  async create(keys, organizationId, { options }) {
    const scopes = options.scopes?.split(',') ?? null
    const name = options.name ?? 'Made on the command line'
    const { secret } = await keys.create({
      organizationId,
      name,
      scopes,
      modelIds: null,
      expiresAt: null,
    })
    console.log(secret)
  },
  async list(keys, organizationId) {
    for (const key of await keys.list(organizationId)) {
      const used = key.lastUsedAt?.toISOString() ?? 'never'
      console.log(`${key.id}  ${key.prefix}…  used ${used}  ${key.name}`)
    }
  },
  async revoke(keys, organizationId, { positionals }) {
    const id = positionals[1]
    if (id === undefined) throw new UsageError('keys revoke needs the id of a key')
    if (!(await keys.revoke(organizationId, id))) throw new UsageError(`there is no key ${id}`)
    console.log(`${id} is revoked`)
  },
}

/** `millrace keys create|list|revoke`: API keys of the default organization. */
export async function keys(env: Env, args: Arguments): Promise<void> {
  const action = ACTIONS[args.positionals[0] ?? '']
  if (action === undefined) throw new UsageError('keys: create, list or revoke')
  const { config } = loadConfig(env)
  const tables = organizationTables(config.database.tablePrefix)
  const database = openDatabase({ ...config.database, logger: createLogger({ level: 'error' }) })
  try {
    const organizationId = await ensureDefaultOrganization(database.db, tables)
    await action(openApiKeys(database.db, tables), organizationId, args)
  } finally {
    await database.close()
  }
}
