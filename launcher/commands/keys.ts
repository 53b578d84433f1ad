import { type Activities, openActivities } from '#api/activities/activity-store.ts'
import { ownActivity } from '#api/activities/own-activity.ts'
import { SCOPES } from '#api/v1/scopes.ts'
import { type Arguments, UsageError } from '#launcher/command-line.ts'
import { openReachableDatabase } from '#launcher/reach.ts'
import { systemClock } from '#shared/clock.ts'
import { type Env, loadConfig } from '#shared/config/config.ts'
import { type ApiKeyStore, openApiKeys } from '#shared/db/api-keys.ts'
import { ensureDefaultOrganization } from '#shared/db/organizations.ts'
import { activityTables } from '#shared/db/schema/activities.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { ServiceError } from '#shared/errors.ts'

interface Services {
  readonly keys: ApiKeyStore
  readonly activities: Pick<Activities, 'recordOwn'>
  /** The organization of the keys. */
  readonly organizationId: string
}

// Column width.
const NAME_CHARACTERS_MAX = 200

type Action = (services: Services, args: Arguments) => Promise<void>

const ACTIONS: Readonly<Record<string, Action>> = {
  async create(services, { options }) {
    const { key, secret } = await services.keys.create({
      organizationId: services.organizationId,
      name: parseName(options.name ?? 'Made on the command line'),
      scopes: options.scopes === undefined ? null : parseScopes(options.scopes),
      modelIds: null,
      expiresAt: null,
    })
    console.log(secret)
    await note(services, { type: 'Create', event: 'key.created', key })
  },
  async list({ keys, organizationId }) {
    for (const key of await keys.list(organizationId)) {
      const used = key.lastUsedAt?.toISOString() ?? 'never'
      console.log(`${key.id}  ${key.prefix}…  used ${used}  ${key.name}`)
    }
  },
  async revoke(services, { positionals }) {
    const id = positionals[1]
    if (id === undefined) throw new UsageError('keys revoke needs the id of a key')
    if (!(await services.keys.revoke(services.organizationId, id)))
      throw new UsageError(`there is no key ${id}`)
    console.log(`${id} is revoked`)
    await note(services, { type: 'Delete', event: 'key.revoked', key: { id } })
  },
}

/** `millrace keys create|list|revoke`: API keys of the default organization or of the named one. */
export async function keys(env: Env, args: Arguments): Promise<void> {
  const action = Object.entries(ACTIONS).find(([name]) => name === args.positionals[0])?.[1]
  if (action === undefined) throw new UsageError('keys: create, list or revoke')
  const { config } = loadConfig(env)
  const { tablePrefix } = config.database
  const tables = organizationTables(tablePrefix)
  const database = await openReachableDatabase(config.database)
  try {
    await action(
      {
        organizationId:
          args.options.organization ?? (await ensureDefaultOrganization(database.db, tables)),
        keys: openApiKeys(database.db, tables),
        activities: openActivities(database.db, activityTables(tablePrefix)),
      },
      args,
    )
  } catch (error) {
    // Throws when the organization does not exist.
    if (error instanceof ServiceError && error.status < 500) throw new UsageError(error.message)
    throw error
  } finally {
    await database.close()
  }
}

function parseName(text: string): string {
  const name = text.trim()
  if (name !== '' && name.length <= NAME_CHARACTERS_MAX) return name
  throw new UsageError(`--name must have 1 to ${NAME_CHARACTERS_MAX} characters`)
}

function parseScopes(text: string): readonly string[] {
  const wanted = text.split(',').map((scope) => scope.trim())
  const unknown = wanted.find((scope) => !SCOPES.some((known) => known === scope))
  if (unknown === undefined) return wanted
  throw new UsageError(`--scopes: there is no "${unknown}"; there are ${SCOPES.join(', ')}`)
}

async function note(
  { activities, organizationId }: Services,
  { key, ...done }: { type: string; event: string; key: { id: string; name?: string } },
): Promise<void> {
  const actor = 'service:command-line'
  const object = { id: `key:${key.id}`, type: 'ApiKey', name: key.name }
  const requestId = undefined
  const atMs = systemClock.now()
  await activities.recordOwn([
    ownActivity({ ...done, actor, object, organizationId, requestId, atMs }),
  ])
}
