import { record } from '#api/auth/audit/record.ts'
import { type AdminRequest, type Answer, json } from '#api/auth/context.ts'
import { invalid } from '#api/auth/errors.ts'
import type { AdminDeleteBody, PageQuery, Parsed, UserParams } from '#api/auth/schemas.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { inTransaction } from '#api/auth/store.ts'
import { presentUser } from '#api/auth/users/present-user.ts'
import {
  deleteUser,
  listUsers,
  loadParts,
  loadPartsOfAll,
  lockUser,
  softDeleteUser,
} from '#api/auth/users/user-store.ts'

import { pageHeaders, parsePage } from './pages.ts'
import { getUser } from './user.ts'

/** One page of users. */
export async function adminListUsers(
  services: AuthServices,
  request: AdminRequest,
  query: Parsed<typeof PageQuery>,
): Promise<Answer> {
  const page = parsePage(query)
  const { users, total } = await listUsers(services.store, {
    audience: request.audience,
    offset: page.offset,
    limit: page.size,
    isOldestFirst: isOldestFirst(query.sort),
    filter: query.filter ?? '',
  })
  const all = await loadPartsOfAll(services.store, users)
  const body = { users: all.map(presentUser), aud: request.audience }
  return json(body, pageHeaders('/admin/users', query, { page, total }))
}

/** One user. */
export async function adminGetUser(
  services: AuthServices,
  _request: AdminRequest,
  params: Parsed<typeof UserParams>,
): Promise<Answer> {
  const user = await getUser(services, params.user_id)
  return json(presentUser(await loadParts(services.store, user)))
}

/** Deletes a user, or only their personal data. */
export async function adminDeleteUser(
  services: AuthServices,
  request: AdminRequest,
  body: Parsed<typeof AdminDeleteBody>,
  params: Parsed<typeof UserParams>,
): Promise<Answer> {
  const user = await getUser(services, params.user_id)
  await inTransaction(services.store, async (store) => {
    const locked = await lockUser(store, user.id)
    await services.onUsersEnded(store.db, [user.id])
    await record(services, store, {
      request,
      actor: { kind: 'admin', role: request.caller.role },
      action: 'user_deleted',
      traits: {
        user_id: user.id,
        user_email: user.email ?? '',
        user_phone: user.phone ?? '',
        soft: body.should_soft_delete === true,
      },
    })
    if (body.should_soft_delete === true) await softDeleteUser(store, locked)
    else await deleteUser(store, user.id)
  })
  return json({})
}

function isOldestFirst(sort: string | undefined): boolean {
  const match = /^created_at(?:\s+(asc|desc))?$/i.exec(sort ?? 'created_at desc')
  if (sort !== undefined && sort !== '' && match === null) {
    throw invalid('Bad Sort Parameters: only created_at asc and created_at desc are known', 'sort')
  }
  return match?.[1]?.toLowerCase() === 'asc'
}
