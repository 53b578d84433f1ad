import { randomUUID } from 'node:crypto'

import { sql } from 'drizzle-orm'
import { describe, expect } from 'vitest'

import { openFiles } from '#api/files/file-store.ts'
import { sweepOrphans } from '#api/files/sweep.ts'
import { openInvitations } from '#api/organizations/invitations.ts'
import { openOrganizations } from '#api/organizations/organizations.ts'
import { sweepEnded } from '#api/server/maintenance.ts'
import { systemClock } from '#shared/clock.ts'
import { openApiKeys } from '#shared/db/api-keys.ts'
import type { Database } from '#shared/db/client.ts'
import { authTables } from '#shared/db/schema/auth.ts'
import { fileTables } from '#shared/db/schema/files.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { openObjectStore } from '#shared/storage/open-store.ts'
import { it } from '#test/support/services.ts'

const DAY_MS = 86_400_000
const PER_USER_MAX = 5

/** The organizations of a database, and users with a proven address. */
function openAll({ db }: Database, perUserMax = 0) {
  const tables = organizationTables('')
  const { users } = authTables('')
  const organizations = openOrganizations(db, tables, { users, perUserMax })
  const invitations = openInvitations(db, tables, { users, organizations })
  const newUser = async () => {
    const id = randomUUID()
    const email = `${id}@example.test`
    const now = new Date()
    const proven = { emailConfirmedAt: now, createdAt: now, updatedAt: now }
    await db.insert(users).values({ id, email, ...proven })
    return { id, email }
  }
  /** Sends invitations of a new organization; of a new owner, too, unless one is given. */
  const newOrganization = async (ownerId?: string) => {
    const creator = ownerId ?? (await newUser()).id
    const { id } = await organizations.create('Mill', creator)
    const invite = (email: string) =>
      invitations.create({
        organizationId: id,
        invitee: { email },
        role: 'member',
        invitedBy: `user:${creator}`,
        expiresAt: new Date(Date.now() + DAY_MS),
      })
    return { id, invite }
  }
  return { organizations, invitations, newUser, newOrganization, tables }
}

const isDone = ({ status }: PromiseSettledResult<unknown>) => status === 'fulfilled'

describe('at once', () => {
  it('no user creates more organizations at once than one after another', async ({ database }) => {
    const { organizations, newUser } = openAll(database, PER_USER_MAX)
    const { id } = await newUser()
    for (let made = 0; made < 3; made++) await organizations.create('Mill', id)
    const more = Array.from({ length: 8 }, () => organizations.create('Mill', id))
    expect((await Promise.allSettled(more)).filter(isDone)).toHaveLength(2)
    expect((await organizations.rolesOf(id)).size).toBe(PER_USER_MAX)
  })

  it('organizations count for their creator when they are given away, and for 30 days when deleted', async ({
    database,
  }) => {
    const { organizations, newUser } = openAll(database, PER_USER_MAX)
    const [creator, friend] = [await newUser(), await newUser()]
    const made = []
    for (let n = 0; n < PER_USER_MAX; n++) made.push(await organizations.create('Mill', creator.id))
    const refused = { code: 'too_many_organizations' }
    const [given, deleted] = made.map(({ id }) => id)
    if (given === undefined || deleted === undefined) throw new Error('none was made')
    await organizations.addMember(given, friend.id, 'owner')
    await organizations.removeMember(given, creator.id, { check: () => {} })
    await organizations.remove(deleted)
    await expect(organizations.create('Mill', creator.id)).rejects.toMatchObject(refused)
    await organizations.create('Mill', friend.id)
    await database.pool.query(
      "update organizations set deleted_at = now() - interval '31 days' where id = $1",
      [deleted],
    )
    await organizations.create('Mill', creator.id)
    await expect(organizations.create('Mill', creator.id)).rejects.toMatchObject(refused)
  })

  it('no organization has more open invitations than one after another', async ({ database }) => {
    const { invite } = await openAll(database).newOrganization()
    for (let sent = 0; sent < 198; sent++) await invite(`${sent}@example.test`)
    const more = Array.from({ length: 8 }, (_, one) => invite(`more-${one}@example.test`))
    expect((await Promise.allSettled(more)).filter(isDone)).toHaveLength(2)
  })

  it('no organization keeps more invitations than a month may have, open or not', async ({
    database,
  }) => {
    const { invitations, newOrganization, tables } = openAll(database)
    const { id, invite } = await newOrganization()
    const first = await invite('first@example.test')
    await invitations.revoke(id, first.id)
    await database.pool.query(
      `insert into organization_invitations
        select (jsonb_populate_record(i, jsonb_build_object('id', i.id || n))).*
        from organization_invitations i, generate_series(2, 10000) n`,
    )
    const refused = { code: 'too_many_invitations' }
    await expect(invite('second@example.test')).rejects.toMatchObject(refused)
    await database.pool.query(
      "update organization_invitations set ended_at = now() - interval '31 days'",
    )
    await sweepEnded(database.db, tables)
    await invite('second@example.test')
    expect((await invitations.list(id, { limit: 9 })).rows).toHaveLength(1)
  })

  it('an invitation is accepted or declined once, and a later answer is refused', async ({
    database,
  }) => {
    const { invitations, newUser, newOrganization } = openAll(database)
    const { invite } = await newOrganization()
    for (let round = 0; round < 10; round++) {
      const guest = await newUser()
      const sent = await invite(guest.email)
      const outcomes = await Promise.allSettled([
        invitations.accept(guest.id, sent.id),
        invitations.decline(guest.id, sent.id),
        invitations.accept(guest.id, sent.id),
        invitations.decline(guest.id, sent.id),
      ])
      const done = outcomes.filter((one) => one.status === 'fulfilled' && one.value !== undefined)
      expect(done).toHaveLength(1)
    }
  })
})

it('an older invitation can be accepted however many were sent since', async ({ database }) => {
  const { invitations, newUser, newOrganization } = openAll(database)
  const guest = await newUser()
  const wanted = await newOrganization()
  const { id } = await wanted.invite(guest.email)
  for (let sender = 0; sender < 3; sender++) {
    const owner = await newUser()
    for (let sent = 0; sent < 70; sent++) {
      await (await newOrganization(owner.id)).invite(guest.email)
    }
  }
  expect(await invitations.accept(guest.id, id)).toMatchObject({ organizationId: wanted.id })
})

it('an organization has as many keys as one answer can list', async ({ database }) => {
  const { organizations, newUser, tables } = openAll(database)
  const apiKeys = openApiKeys(database.db, tables)
  const { id } = await organizations.create('Mill', (await newUser()).id)
  await database.db.execute(sql`
    insert into api_keys (id, organization_id, name, prefix, secret_sha256)
    select 'key_' || n, ${id}, 'many', 'mr-', sha256(n::text::bytea) from generate_series(1, 9999) n`)
  const request = { organizationId: id, name: 'more', scopes: null, modelIds: null }
  const more = Array.from({ length: 4 }, () => apiKeys.create({ ...request, expiresAt: null }))
  expect((await Promise.allSettled(more)).filter(isDone)).toHaveLength(1)
  await apiKeys.revoke(id, 'key_1')
  expect((await apiKeys.create({ ...request, expiresAt: null })).key.name).toBe('more')
})

describe('an organization that was deleted', () => {
  it('gives no key to a caller who was authorized a moment before', async ({ database }) => {
    const { organizations, newUser, tables } = openAll(database)
    const apiKeys = openApiKeys(database.db, tables)
    const { id } = await organizations.create('Mill', (await newUser()).id)
    await organizations.remove(id)
    const request = { organizationId: id, name: 'late', scopes: null, modelIds: null }
    await expect(apiKeys.create({ ...request, expiresAt: null })).rejects.toMatchObject({
      kind: 'notFound',
    })
    expect(await apiKeys.list(id)).toEqual([])
  })

  it('keeps no files, so that a new one is no second allowance', async ({ database, folder }) => {
    const { organizations, newUser } = openAll(database)
    const files = openFiles(database.db, fileTables(''))
    const store = await openObjectStore({ driver: 'directory', path: folder })
    const later = { ...systemClock, now: () => Date.now() + DAY_MS }
    const kept = await organizations.create('Mill', (await newUser()).id)
    const { id } = await organizations.create('Gone', (await newUser()).id)
    for (const organizationId of [kept.id, id]) {
      const objectKey = `files/${organizationId}`
      await store.put(objectKey, Buffer.from('bytes'))
      const upload = { organizationId, objectKey, filename: 'a', purpose: 'user_data', bytes: 5 }
      await files.publish({ ...upload, id: organizationId, sha256: Buffer.alloc(32) }, 5)
    }
    await organizations.remove(id)
    expect(await sweepOrphans({ files, store, clock: later })).toBe(1)
    expect(await files.find(id, id)).toBeUndefined()
    expect(await files.usedBytes(id)).toBe(0)
    expect(await store.head(`files/${id}`)).toBeUndefined()
    expect(await files.usedBytes(kept.id)).toBe(5)
    expect(await store.head(`files/${kept.id}`)).toBeDefined()
  })
})
