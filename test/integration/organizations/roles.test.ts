import { randomUUID } from 'node:crypto'

import { afterEach, describe, expect } from 'vitest'

import { organizationTables } from '#shared/db/schema/organizations.ts'
import { it } from '#test/support/services.ts'

import { closeSurfaces, openSurface } from './organizations-surface.ts'

afterEach(closeSurfaces)

/** The caller; a key counts as an administrator of its organization. */
const CALLERS = ['owner', 'admin', 'member', 'key', 'stranger', 'foreignKey'] as const
type Who = (typeof CALLERS)[number]

interface Scene {
  readonly id: string
  readonly people: Readonly<Record<Who, string>>
  /** A further member, one of each role. */
  readonly targets: Readonly<Record<'owner' | 'admin' | 'member', string>>
  readonly newcomer: string
  readonly invitationId: string
}

interface Row {
  readonly route: string
  /** The difference between rows of one route. */
  readonly note?: string
  readonly body?: (scene: Scene) => object
  readonly target?: keyof Scene['targets']
  /** The statuses, in the order of `CALLERS`. */
  readonly statuses: readonly [number, number, number, number, number, number]
}

const STRANGERS = [404, 404] as const
const EVERYBODY = [200, 200, 200, 200, ...STRANGERS] as const
const ADMINISTRATORS = [200, 200, 403, 200, ...STRANGERS] as const
const OWNERS = [200, 403, 403, 403, ...STRANGERS] as const

/** Every route below `/v1/organizations/{id}`, as whom it answers how. */
const ROWS: readonly Row[] = [
  { route: 'GET /organizations/{id}', statuses: EVERYBODY },
  { route: 'PATCH /organizations/{id}', body: () => ({ name: 'New' }), statuses: ADMINISTRATORS },
  { route: 'DELETE /organizations/{id}', statuses: OWNERS },
  { route: 'GET /organizations/{id}/members', statuses: EVERYBODY },
  ...(['member', 'admin', 'owner'] as const).flatMap((target) => [
    {
      route: 'PATCH /organizations/{id}/members/{user_id}',
      note: `a ${target} becomes an administrator`,
      body: () => ({ role: 'admin' }),
      target,
      statuses: target === 'owner' ? OWNERS : ADMINISTRATORS,
    },
    {
      route: 'PATCH /organizations/{id}/members/{user_id}',
      note: `a ${target} becomes an owner`,
      body: () => ({ role: 'owner' }),
      target,
      statuses: OWNERS,
    },
    {
      route: 'DELETE /organizations/{id}/members/{user_id}',
      note: `a ${target} is removed`,
      target,
      statuses: target === 'owner' ? OWNERS : ADMINISTRATORS,
    },
  ]),
  { route: 'GET /organizations/{id}/invitations', statuses: ADMINISTRATORS },
  ...(['member', 'admin', 'owner'] as const).map((role) => ({
    route: 'POST /organizations/{id}/invitations',
    note: `a new ${role}`,
    body: () => ({ email: `${randomUUID()}@example.test`, role }),
    statuses: role === 'owner' ? OWNERS : ADMINISTRATORS,
  })),
  ...(['member', 'admin', 'owner'] as const).map((role) => ({
    route: 'POST /organizations/{id}/invitations',
    note: `a user as ${role}`,
    body: ({ newcomer }: Scene) => ({ user_id: newcomer, role }),
    statuses: role === 'owner' ? OWNERS : ADMINISTRATORS,
  })),
  { route: 'GET /organizations/{id}/invitations/{invitation_id}', statuses: ADMINISTRATORS },
  { route: 'DELETE /organizations/{id}/invitations/{invitation_id}', statuses: ADMINISTRATORS },
]

describe('the role of a caller', () => {
  it('is checked by every endpoint of an organization', async ({ database }) => {
    const { app } = await openSurface(database)
    const { paths } = (await (await app.inject('/openapi.json')).json()) as {
      paths: Record<string, Record<string, unknown>>
    }
    const served = Object.entries(paths)
      .filter(([path]) => path.startsWith('/v1/organizations/'))
      .flatMap(([path, methods]) =>
        Object.keys(methods).map((method) => `${method.toUpperCase()} ${path.slice('/v1'.length)}`),
      )
    expect(new Set(ROWS.map(({ route }) => route))).toEqual(new Set(served))
  })

  it.for(ROWS)('decides on $route ($note)', async (row, { database }) => {
    const surface = await openSurface(database)
    const [method = '', path = ''] = row.route.split(' ')
    const seen: Record<string, number> = {}
    let scene = await openScene(surface, database)
    for (const who of CALLERS) {
      const url = path
        .replace('/organizations/{id}', `/${scene.id}`)
        .replace('{user_id}', scene.targets[row.target ?? 'member'])
        .replace('{invitation_id}', scene.invitationId)
      const { status } = await surface.as(scene.people[who], method, url, row.body?.(scene))
      seen[who] = status
      const hasChanged = status < 300 && method !== 'GET'
      if (hasChanged) scene = await openScene(surface, database)
    }
    expect(seen).toEqual(Object.fromEntries(CALLERS.map((who, at) => [who, row.statuses[at]])))
  })
})

describe('a role that ends while a request waits', () => {
  const CHANGES = [
    ['PATCH', '/members/{member}', { role: 'owner' }],
    ['DELETE', '/members/{member}', undefined],
    ['PATCH', '', { name: 'Taken' }],
    ['DELETE', '', undefined],
  ] as const

  it.for(CHANGES)(
    'does not permit %s /organizations/{id}%s',
    async ([method, path, body], { database }) => {
      const surface = await openSurface(database)
      const { id, people, targets } = await openScene(surface, database)
      const client = await database.pool.connect()
      try {
        await client.query('begin')
        await client.query('select from organizations where id = $1 for update', [id])
        const url = `/${id}${path.replace('{member}', targets.member)}`
        const answer = surface.as(people.owner, method, url, body)
        await expect.poll(async () => await countWaiting(database)).toBe(1)
        await client.query(
          "update organization_members set role = 'member' where organization_id = $1 and user_id = $2",
          [id, people.owner],
        )
        await client.query('commit')
        expect((await answer).status).toBe(403)
      } finally {
        client.release()
      }
    },
  )
})

/** The statements that wait for a lock. */
async function countWaiting({ pool }: Parameters<typeof openSurface>[0]): Promise<number> {
  const { rows } = await pool.query(
    `select count(*)::int as waiting from pg_stat_activity
     where datname = current_database() and wait_event_type = 'Lock'`,
  )
  return rows[0].waiting
}

async function openScene(
  { newUser, newKey, newOrganization, join }: Awaited<ReturnType<typeof openSurface>>,
  database: Parameters<typeof openSurface>[0],
): Promise<Scene> {
  const owner = await newUser()
  const id = await newOrganization(owner)
  const add = async (role: string) => {
    const user = await newUser()
    await join(owner, id, user, role)
    return user
  }
  const invitationId = `inv_${randomUUID()}`
  await database.db.insert(organizationTables('').invitations).values({
    id: invitationId,
    organizationId: id,
    email: `${id}@example.test`,
    role: 'member',
    invitedBy: owner,
    expiresAt: new Date(Date.now() + 60_000),
  })
  return {
    id,
    invitationId,
    newcomer: await newUser(),
    people: {
      owner,
      admin: await add('admin'),
      member: await add('member'),
      key: await newKey(id),
      stranger: await newUser(),
      foreignKey: await newKey('org-foreign'),
    },
    targets: { owner: await add('owner'), admin: await add('admin'), member: await add('member') },
  }
}
