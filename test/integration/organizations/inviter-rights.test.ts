import { randomUUID } from 'node:crypto'

import { eq } from 'drizzle-orm'
import { afterEach, describe, expect } from 'vitest'

import { openApiKeys } from '#shared/db/api-keys.ts'
import type { Database } from '#shared/db/client.ts'
import { authTables } from '#shared/db/schema/auth.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { it } from '#test/support/services.ts'

import { closeSurfaces, openSurface } from './organizations-surface.ts'

afterEach(closeSurfaces)

const { users } = authTables('')

/** An organization with a further owner or administrator, and a person who is to be invited. */
async function openScene(database: Database, role = 'admin') {
  const surface = await openSurface(database)
  const { as, newUser, newOrganization, join } = surface
  const [owner, inviter, person] = [await newUser(), await newUser(), await newUser()]
  const id = await newOrganization(owner)
  await join(owner, id, inviter, role)
  const email = `${randomUUID()}@example.test`
  const emailConfirmedAt = new Date()
  await database.db.update(users).set({ email, emailConfirmedAt }).where(eq(users.id, person))
  const invite = (who: string, as_: string = 'member') =>
    as(who, 'POST', `/${id}/invitations`, { email, role: as_ })
  const statusOf = async (invitationId: string) =>
    (await as(owner, 'GET', `/${id}/invitations/${invitationId}`)).body as { status?: string }
  const received = async (path = '', method = 'GET') => {
    const answer = await fetch(`${surface.base}/v1/invitations${path}`, {
      method,
      headers: { authorization: `Bearer eyJ.${person}.x` },
    })
    return { status: answer.status, body: (await answer.json()) as { data: unknown[] } }
  }
  const accept = async (invitationId: string) =>
    (await received(`/${invitationId}/accept`, 'POST')).status
  return { ...surface, id, owner, inviter, invite, statusOf, received, accept }
}

type Scene = Awaited<ReturnType<typeof openScene>>

/** A change to the inviter, and the inviter's role before. */
const FALLS: readonly [string, string, (scene: Scene, database: Database) => Promise<unknown>][] = [
  [
    'was demoted',
    'admin',
    ({ as, owner, id, inviter }) =>
      as(owner, 'PATCH', `/${id}/members/${inviter}`, { role: 'member' }),
  ],
  [
    'was removed',
    'admin',
    ({ as, owner, id, inviter }) => as(owner, 'DELETE', `/${id}/members/${inviter}`),
  ],
  [
    'is banned',
    'admin',
    ({ inviter }, { db }) =>
      db
        .update(users)
        .set({ bannedUntil: new Date(Date.now() + 600_000) })
        .where(eq(users.id, inviter)),
  ],
]

describe('an invitation', () => {
  it.for(FALLS)(
    'gives nothing once its inviter %s, and makes room for a new one',
    async ([, role, fall], { database }) => {
      const scene = await openScene(database, role)
      const { owner, inviter, invite, statusOf, received, accept } = scene
      const { body } = await invite(inviter)
      expect(await statusOf(body.id)).toMatchObject({ status: 'pending' })
      expect((await received()).body.data).toHaveLength(1)
      await fall(scene, database)
      expect(await statusOf(body.id)).toMatchObject({ status: 'revoked' })
      expect((await received()).body.data).toEqual([])
      expect(await accept(body.id)).toBe(404)
      const again = await invite(owner)
      expect(again.status).toBe(200)
      expect(await accept(again.body.id)).toBe(200)
      expect(await statusOf(again.body.id)).toMatchObject({ status: 'accepted' })
    },
  )

  it('to own the organization needs an inviter who is still an owner', async ({ database }) => {
    const { as, id, owner, inviter, invite, accept } = await openScene(database, 'owner')
    const { body } = await invite(inviter, 'owner')
    await as(owner, 'PATCH', `/${id}/members/${inviter}`, { role: 'admin' })
    expect(await accept(body.id)).toBe(404)
    const lesser = await invite(inviter, 'admin')
    expect(lesser.status).toBe(200)
    expect(await accept(lesser.body.id)).toBe(200)
  })

  it("by a key ends with the key, and with the rights of the key's own inviter", async ({
    database,
  }) => {
    const { as, id, owner, inviter, invite, statusOf, received, accept } = await openScene(database)
    const keys = openApiKeys(database.db, organizationTables(''))
    const newKey = () =>
      keys.create({
        organizationId: id,
        name: 'x',
        scopes: null,
        modelIds: null,
        expiresAt: null,
        createdBy: inviter,
      })
    const revoked = await newKey()
    const first = await invite(revoked.secret)
    expect((await received()).body.data).toHaveLength(1)
    await keys.revoke(id, revoked.key.id)
    expect(await statusOf(first.body.id)).toMatchObject({ status: 'revoked' })
    expect(await accept(first.body.id)).toBe(404)
    const second = await invite((await newKey()).secret)
    expect(await statusOf(second.body.id)).toMatchObject({ status: 'pending' })
    await as(owner, 'PATCH', `/${id}/members/${inviter}`, { role: 'member' })
    expect(await accept(second.body.id)).toBe(404)
  })
})
