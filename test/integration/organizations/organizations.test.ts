import { randomUUID } from 'node:crypto'

import { afterEach, describe, expect } from 'vitest'

import { it } from '#test/support/services.ts'

import { closeSurfaces, openSurface } from './organizations-surface.ts'

afterEach(closeSurfaces)

describe('organizations', () => {
  it('are created by users, listed beside their personal one, renamed and deleted', async ({
    database,
  }) => {
    const { as, newUser } = await openSurface(database)
    const owner = await newUser()
    const made = await as(owner, 'POST', '', { name: 'Mill' })
    expect(made).toMatchObject({
      status: 200,
      body: { name: 'Mill', role: 'owner', is_personal: false },
    })
    const { id } = made.body
    const listed = (await as(owner, 'GET', '')).body.data
    expect(listed.map((one) => one.is_personal).sort()).toEqual([false, true])
    expect((await as(owner, 'PATCH', `/${id}`, { name: 'Wheel' })).body.name).toBe('Wheel')
    expect((await as(owner, 'GET', `/${id}`, undefined, id)).body.name).toBe('Wheel')
    expect((await as(owner, 'DELETE', `/${id}`)).status).toBe(200)
    expect((await as(owner, 'GET', `/${id}`)).status).toBe(404)
    // The header names none of the caller's organizations, and the caller has one: it is ignored.
    expect((await as(owner, 'GET', '', undefined, id)).status).toBe(200)
    const own = listed.find((one) => one.is_personal)?.id ?? ''
    const refused = await as(owner, 'DELETE', `/${own}`)
    expect(refused).toMatchObject({
      status: 409,
      body: { error: { code: 'personal_organization' } },
    })
  })

  it('cannot be created by anonymous users', async ({ database }) => {
    const { as, newUser } = await openSurface(database)
    const user = await newUser()
    await database.pool.query('update users set is_anonymous = true where id = $1', [user])
    expect(await as(user, 'POST', '', { name: 'Mill' })).toMatchObject({
      status: 403,
      body: { error: { code: 'insufficient_permissions' } },
    })
    expect((await as(user, 'GET', '')).body.data).toHaveLength(1)
  })

  it('delete their keys when they are deleted', async ({ database }) => {
    const { as, newUser, newOrganization, newKey } = await openSurface(database)
    const owner = await newUser()
    const id = await newOrganization(owner)
    const key = await newKey(id)
    expect((await as(key, 'GET', `/${id}`)).body.role).toBe('admin')
    expect((await as(key, 'DELETE', `/${id}`)).status).toBe(403)
    expect((await as(key, 'POST', '', { name: 'No' })).status).toBe(403)
    await as(owner, 'DELETE', `/${id}`)
    await expect.poll(async () => (await as(key, 'GET', '')).status, { timeout: 3000 }).toBe(401)
  })

  it('are unknown to strangers, in every request', async ({ database }) => {
    const { as, newUser, newOrganization, key } = await openSurface(database)
    const id = await newOrganization(await newUser())
    const member = `/${id}/members/${randomUUID()}`
    for (const stranger of [await newUser(), key]) {
      for (const [method, path, body] of [
        ['GET', `/${id}`],
        ['PATCH', `/${id}`, { name: 'Mine' }],
        ['DELETE', `/${id}`],
        ['GET', `/${id}/members`],
        ['POST', `/${id}/invitations`, { user_id: randomUUID(), role: 'admin' }],
        ['PATCH', member, { role: 'admin' }],
        ['DELETE', member],
      ] as const) {
        const { status } = await as(stranger, method, path, body)
        expect([method, path, status]).toEqual([method, path, 404])
      }
    }
  })
})

describe('members', () => {
  it('join only by their own consent', async ({ database }) => {
    const { as, newUser, newOrganization, call } = await openSurface(database)
    const [owner, user, other] = [await newUser(), await newUser(), await newUser()]
    const id = await newOrganization(owner)
    const added = await as(owner, 'POST', `/${id}/members`, { user_id: user, role: 'owner' })
    expect(added.status).toBe(405)
    const body = { user_id: user.toUpperCase(), role: 'admin' }
    const invited = await as(owner, 'POST', `/${id}/invitations`, body)
    expect(invited).toMatchObject({
      status: 200,
      body: { status: 'pending', user_id: user, email: null },
    })
    const again = await as(owner, 'POST', `/${id}/invitations`, body)
    expect(again).toMatchObject({
      status: 409,
      body: { error: { code: 'already_invited', param: 'user_id' } },
    })
    const both = await as(owner, 'POST', `/${id}/invitations`, { ...body, email: 'a@example.test' })
    expect(both.body.error.code).toBe('mutually_exclusive_parameters')
    expect((await as(user, 'GET', `/${id}`)).status).toBe(404)
    expect((await as(user, 'GET', '')).body.data).toHaveLength(1)
    const accept = async (who: string) => {
      const path = `/invitations/${invited.body.id}/accept`
      return (await call(path, { method: 'POST' }, `eyJ.${who}.x`)).status
    }
    expect(await accept(other)).toBe(404)
    expect(await accept(user)).toBe(200)
    expect((await as(user, 'GET', `/${id}`)).body.role).toBe('admin')
  })

  it('have roles: administrators manage all but owners, members only leave', async ({
    database,
  }) => {
    const { as, newUser, newOrganization, join } = await openSurface(database)
    const [owner, admin, member] = [await newUser(), await newUser(), await newUser()]
    const id = await newOrganization(owner)
    const add = (who: string, userId: string, role: string) => join(who, id, userId, role)
    expect((await add(owner, admin, 'admin')).status).toBe(200)
    expect((await add(admin, member, 'member')).status).toBe(200)
    expect((await add(admin, member, 'member')).body.error.code).toBe('already_member')
    expect((await add(admin, await newUser(), 'owner')).status).toBe(403)
    expect((await add(admin, randomUUID(), 'member')).status).toBe(404)
    expect((await add(admin, 'nobody', 'member')).body.error.param).toBe('user_id')
    expect((await add(member, await newUser(), 'member')).status).toBe(403)
    const change = (who: string, user: string, role: string) =>
      as(who, 'PATCH', `/${id}/members/${user}`, { role })
    expect((await change(admin, owner, 'member')).status).toBe(403)
    expect((await change(admin, admin, 'owner')).status).toBe(403)
    expect((await change(admin, member, 'admin')).body.role).toBe('admin')
    expect((await change(admin, member, 'member')).body.role).toBe('member')
    expect((await as(member, 'DELETE', `/${id}/members/${admin}`)).status).toBe(403)
    expect((await as(member, 'GET', `/${id}/members`)).body.data).toMatchObject([
      { id: owner, role: 'owner' },
      { id: admin, role: 'admin' },
      { id: member, role: 'member' },
    ])
    expect((await as(member, 'DELETE', `/${id}/members/${member}`)).status).toBe(200)
    expect((await as(member, 'GET', `/${id}`)).status).toBe(404)
  })

  it('always keep one owner, even if two leave at once', async ({ database }) => {
    const { as, newUser, newOrganization, join } = await openSurface(database)
    const [one, two] = [await newUser(), await newUser()]
    const id = await newOrganization(one)
    const refused = await as(one, 'DELETE', `/${id}/members/${one}`)
    expect(refused).toMatchObject({ status: 409, body: { error: { code: 'last_owner' } } })
    expect((await as(one, 'PATCH', `/${id}/members/${one}`, { role: 'admin' })).status).toBe(409)
    await join(one, id, two, 'owner')
    const leaving = await Promise.all(
      [one, two].map((user) => as(user, 'DELETE', `/${id}/members/${user}`)),
    )
    expect(leaving.map(({ status }) => status).sort()).toEqual([200, 409])
  })

  it('keep the user whose own organization it is', async ({ database }) => {
    const { as, newUser, join } = await openSurface(database)
    const [one, two] = [await newUser(), await newUser()]
    const own = (await as(one, 'GET', '')).body.data[0]?.id ?? ''
    await join(one, own, two, 'owner')
    const refused = await as(two, 'DELETE', `/${own}/members/${one}`)
    expect(refused.body.error.code).toBe('personal_organization')
  })
})
