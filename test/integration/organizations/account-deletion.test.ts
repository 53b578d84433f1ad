import { randomUUID } from 'node:crypto'

import { eq } from 'drizzle-orm'
import { describe, expect } from 'vitest'

import { endMemberships } from '#api/organizations/account-deletion.ts'
import { openOrganizations } from '#api/organizations/organizations.ts'
import { hashSecret, openApiKeys } from '#shared/db/api-keys.ts'
import type { Database } from '#shared/db/client.ts'
import { membershipsOf, type OrganizationRole } from '#shared/db/organizations.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { it } from '#test/support/services.ts'

const tables = organizationTables('')
const { users } = tables

/** Users of a database, and what they leave behind. */
function open({ db }: Database) {
  const organizations = openOrganizations(db, tables, { users, perUserMax: 0 })
  const keys = openApiKeys(db, tables)
  const newUser = async () => {
    const id = randomUUID()
    await db.insert(users).values({ id, createdAt: new Date(), updatedAt: new Date() })
    return id
  }
  const newKey = async (organizationId: string) => {
    const request = { organizationId, name: 'x', scopes: null, modelIds: null, expiresAt: null }
    const { secret } = await keys.create(request)
    return async () => (await keys.findBySecretHash(hashSecret(secret))) !== undefined
  }
  // In the order of the flow: the user is held before anything else is.
  const end = (id: string) =>
    db.transaction(async (tx) => {
      await tx.select().from(users).where(eq(users.id, id)).for('update')
      await endMemberships(tx, tables, [id])
      await tx.delete(users).where(eq(users.id, id))
    })
  const rolesIn = async (id: string) =>
    Object.fromEntries((await organizations.members(id)).map(({ userId, role }) => [userId, role]))
  return { organizations, newUser, newKey, end, rolesIn }
}

describe('a deleted user', () => {
  it('deletes the organizations without another member', async ({ database }) => {
    const { organizations, newUser, newKey, end } = open(database)
    const user = await newUser()
    const [own] = await membershipsOf(database.db, tables, user)
    const alone = await organizations.create('Alone', user)
    const isAlive = await Promise.all([newKey(own?.id ?? ''), newKey(alone.id)])
    expect(await Promise.all(isAlive.map((is) => is()))).toEqual([true, true])
    await end(user)
    expect(await Promise.all(isAlive.map((is) => is()))).toEqual([false, false])
    expect(await organizations.find([own?.id ?? '', alone.id])).toEqual([])
    // A new user under the same id has no organizations.
    await database.db
      .insert(users)
      .values({ id: user, createdAt: new Date(), updatedAt: new Date() })
    const [anew] = await membershipsOf(database.db, tables, user)
    expect(anew?.role).toBe('owner')
    expect(anew?.id).not.toBe(own?.id)
  })

  it('leaves shared resources to the other members, with an owner', async ({ database }) => {
    const { organizations, newUser, newKey, end, rolesIn } = open(database)
    for (const [others, expected] of [
      [
        ['member', 'admin', 'admin'],
        ['member', 'owner', 'admin'],
      ],
      [
        ['member', 'member'],
        ['owner', 'member'],
      ],
      [
        ['admin', 'owner'],
        ['admin', 'owner'],
      ],
    ] as const) {
      const user = await newUser()
      const { id } = await organizations.create('Mill', user)
      const isAlive = await newKey(id)
      const known: string[] = []
      for (const role of others) {
        const other = await newUser()
        await organizations.addMember(id, other, role)
        known.push(other)
      }
      await end(user)
      const roles: Record<string, OrganizationRole> = await rolesIn(id)
      expect(known.map((other) => roles[other])).toEqual(expected)
      expect(Object.keys(roles)).toHaveLength(others.length)
      expect(await isAlive()).toBe(true)
    }
  })

  it('never deletes the organization of the operator, which has no owner', async ({ database }) => {
    const { organizations, newUser, newKey, end } = open(database)
    await database.db.insert(tables.organizations).values({ id: 'org-one', name: 'Default' })
    const isAlive = await newKey('org-one')
    const user = await newUser()
    await organizations.addMember('org-one', user, 'admin')
    await end(user)
    expect(await isAlive()).toBe(true)
    expect(await organizations.members('org-one')).toEqual([])
  })

  it('is not a member, even if added at this very moment', async ({ database }) => {
    const { organizations, newUser, end, rolesIn } = open(database)
    const { id } = await organizations.create('Mill', await newUser())
    for (let round = 0; round < 20; round++) {
      const user = await newUser()
      await organizations.create('Theirs', user)
      const outcomes = await Promise.allSettled([
        organizations.addMember(id, user, 'member'),
        end(user),
        organizations.create('Late', user),
        // The first request of theirs below /v1.
        membershipsOf(database.db, tables, user, { isSeen: true }),
      ])
      expect(outcomes[1].status).toBe('fulfilled')
      expect(Object.keys(await rolesIn(id))).toHaveLength(1)
      expect((await organizations.rolesOf(user)).size).toBe(0)
    }
  })
})
