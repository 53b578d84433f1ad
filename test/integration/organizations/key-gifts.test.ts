import { randomUUID } from 'node:crypto'

import { afterEach, describe, expect } from 'vitest'

import { MEMBER_SCOPES, SCOPES } from '#api/v1/scopes.ts'
import { type ApiKeyRequest, openApiKeys } from '#shared/db/api-keys.ts'
import type { Database } from '#shared/db/client.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { it } from '#test/support/services.ts'

import { closeSurfaces, openSurface } from './organizations-surface.ts'

afterEach(closeSurfaces)

const UNLIMITED = { scopes: null, modelIds: null, expiresAt: null }
const soon = () => new Date(Date.now() + 600_000)

/** The rights of a key towards a newcomer: as a member, as an administrator. */
const ROWS: readonly [string, () => Partial<ApiKeyRequest>, readonly [number, number]][] = [
  ['all rights', () => ({}), [200, 200]],
  ['all scopes by name', () => ({ scopes: SCOPES }), [200, 200]],
  ['the scopes of a member', () => ({ scopes: MEMBER_SCOPES }), [200, 403]],
  ['the scope organizations alone', () => ({ scopes: ['organizations'] }), [403, 403]],
  ['some models only', () => ({ modelIds: ['tiny-chat'] }), [403, 403]],
  ['an end', () => ({ expiresAt: soon() }), [403, 403]],
]

async function openScene(database: Database) {
  const surface = await openSurface(database)
  const owner = await surface.newUser()
  const id = await surface.newOrganization(owner)
  const newKey = async (rights: Partial<ApiKeyRequest>) =>
    (
      await openApiKeys(database.db, organizationTables('')).create({
        organizationId: id,
        name: 'x',
        ...UNLIMITED,
        ...rights,
      })
    ).secret
  const addMember = async (role: string, as: string = owner) => {
    const userId = await surface.newUser()
    const answer = await surface.join(as, id, userId, role)
    return { userId, ...answer }
  }
  return { ...surface, owner, id, newKey, addMember }
}

describe('a key', () => {
  it.for(ROWS)(
    'with %s gives no more rights than that',
    async ([, rights, expected], { database }) => {
      const { as, id, newKey, addMember } = await openScene(database)
      const key = await newKey(rights())
      const seen = { added: [] as number[], invited: [] as number[] }
      for (const role of ['member', 'admin']) {
        const added = await addMember(role, key)
        seen.added.push(added.status)
        const email = `${randomUUID()}@example.test`
        const invited = await as(key, 'POST', `/${id}/invitations`, { email, role })
        seen.invited.push(invited.status)
        for (const { status, body } of [added, invited]) {
          if (status === 200) continue
          expect(body.error).toMatchObject({ param: 'role', code: 'insufficient_permissions' })
        }
      }
      expect(seen).toEqual({ added: expected, invited: expected })
      const { userId } = await addMember('member')
      const raised = await as(key, 'PATCH', `/${id}/members/${userId}`, { role: 'admin' })
      expect(raised.status).toBe(expected[1])
    },
  )

  it('with only the scope organizations can still remove rights', async ({ database }) => {
    const { as, id, newKey, addMember } = await openScene(database)
    const key = await newKey({ scopes: ['organizations'] })
    const { userId } = await addMember('admin')
    const path = `/${id}/members/${userId}`
    expect((await as(key, 'PATCH', path, { role: 'member' })).body.role).toBe('member')
    expect((await as(key, 'DELETE', path)).status).toBe(200)
  })

  it('can no longer manage anything once its creator may not', async ({ database }) => {
    const { as, owner, id, newKey, addMember, call } = await openScene(database)
    const { userId: creator } = await addMember('admin')
    const key = await newKey({ createdBy: creator })
    const statuses = async () => [
      (await addMember('member', key)).status,
      (await as(key, 'PATCH', `/${id}`, { name: 'New' })).status,
      (await as(key, 'GET', `/${id}/members`)).status,
      (await call('/organizations', {}, key)).status,
    ]
    expect(await statuses()).toEqual([200, 200, 200, 200])
    const path = `/${id}/members/${creator}`
    const ban = (until: Date | null) =>
      database.pool.query('update users set banned_until = $2 where id = $1', [creator, until])
    await ban(soon())
    expect(await statuses()).toEqual([403, 403, 200, 200])
    await ban(null)
    expect(await statuses()).toEqual([200, 200, 200, 200])
    await as(owner, 'PATCH', path, { role: 'member' })
    expect(await statuses()).toEqual([403, 403, 200, 200])
    await as(owner, 'PATCH', path, { role: 'owner' })
    expect(await statuses()).toEqual([200, 200, 200, 200])
    await as(owner, 'DELETE', path)
    expect(await statuses()).toEqual([403, 403, 200, 200])
  })
})
