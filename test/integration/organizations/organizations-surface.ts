import { randomUUID } from 'node:crypto'

import { eq } from 'drizzle-orm'

import { openInvitations } from '#api/organizations/invitations.ts'
import { openOrganizations } from '#api/organizations/organizations.ts'
import { organizationsPlugin } from '#api/organizations/routes.ts'
import { systemClock } from '#shared/clock.ts'
import type { Database } from '#shared/db/client.ts'
import { membershipsOf } from '#shared/db/organizations.ts'
import { authTables } from '#shared/db/schema/auth.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { openV1App } from '#test/support/v1-app.ts'

const closers: (() => unknown)[] = []

/** Closes the surfaces that a test opened; for `afterEach`. */
export async function closeSurfaces(): Promise<void> {
  for (const close of closers.splice(0)) await close()
}

/** How a call is answered. */
export interface Answer {
  status: number
  body: {
    id: string
    name: string
    role: string
    is_personal: boolean
    data: { id: string; role: string; is_personal: boolean }[]
    error: { code: string; param: string }
  }
}

/** The surface, with users whose token is their id. */
export async function openSurface(database: Database) {
  const tables = organizationTables('')
  const { users } = authTables('')
  const organizations = openOrganizations(database.db, tables, { users, perUserMax: 0 })
  const services = {
    invitations: openInvitations(database.db, tables, { users, organizations }),
    // Invitations have a test of their own, with real mails.
    mailer: { parseEmail: (text: string) => text, send: async () => {} },
    organizations,
    note: () => {},
    clock: systemClock,
  }
  const surface = await openV1App(database, [organizationsPlugin(services)], {
    verifyAccessToken: async (token) => {
      const userId = token.split('.')[1] as string
      const organizations = await membershipsOf(database.db, tables, userId)
      const [user] = await database.db.select().from(users).where(eq(users.id, userId))
      return { userId, organizations, isAnonymous: user?.isAnonymous === true }
    },
  })
  closers.push(() => surface.app.close())
  const newUser = async () => {
    const id = randomUUID()
    await database.db.insert(users).values({ id, createdAt: new Date(), updatedAt: new Date() })
    return id
  }
  const as = async (
    who: string,
    method: string,
    path: string,
    body?: unknown,
    organization?: string,
  ): Promise<Answer> => {
    const answer = await fetch(`${surface.base}/v1/organizations${path}`, {
      method,
      headers: {
        authorization: `Bearer ${who.startsWith('mr-') ? who : `eyJ.${who}.x`}`,
        ...(organization !== undefined && { 'openai-organization': organization }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    return { status: answer.status, body: (await answer.json()) as Answer['body'] }
  }
  const newOrganization = async (owner: string) =>
    (await as(owner, 'POST', '', { name: 'Mill' })).body.id
  /** Makes a user a member: `who` invites, the user accepts. Answers the invitation. */
  const join = async (who: string, id: string, userId: string, role: string): Promise<Answer> => {
    const invited = await as(who, 'POST', `/${id}/invitations`, { user_id: userId, role })
    if (invited.status !== 200) return invited
    const path = `/invitations/${invited.body.id}/accept`
    const accepted = await surface.call(path, { method: 'POST' }, `eyJ.${userId}.x`)
    if (accepted.status !== 200) throw new Error(await accepted.text())
    return invited
  }
  return { ...surface, newUser, as, newOrganization, join }
}
