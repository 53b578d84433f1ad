import type { FastifyRequest } from 'fastify'
import type { Pool } from 'pg'

import { adminDeleteFactor } from '#api/auth/admin/factors.ts'
import { invite } from '#api/auth/admin/invite.ts'
import { adminUpdateUser } from '#api/auth/admin/update-user.ts'
import { getUser } from '#api/auth/admin/user.ts'
import type { AdminRequest } from '#api/auth/context.ts'
import { listFactors } from '#api/auth/factors/factors.ts'
import { describeRequest } from '#api/auth/guards.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { endSessions } from '#api/auth/sessions/sessions.ts'
import { type Administrator, CONSOLE_ROLES, type ConsoleRole } from '#api/console/access.ts'
import { bodyOf, type ConsoleArea, type ConsoleCall } from '#api/console/api.ts'
import { listQuery, readPage, TEXT_FILTER } from '#api/console/lists.ts'
import { failure } from '#shared/errors.ts'

import { userIdOf } from './organizations.ts'

interface UserAreaServices {
  readonly pool: Pool
  readonly prefix: string
  readonly auth: AuthServices
}

interface OneUser {
  readonly user: string
}

const BAN_HOURS_MAX = 24 * 3650

/** Users, their sessions and second factors. */
export function userArea(services: UserAreaServices): ConsoleArea {
  const { auth } = services
  return {
    reads: [
      {
        path: '/users',
        query: listQuery({ query: TEXT_FILTER }),
        handle: ({ query }: ConsoleCall<object, object, { query?: string; page?: number }>) =>
          listUsers(services, query),
      },
      {
        path: '/users/:user/sessions',
        handle: ({ params }: ConsoleCall<OneUser>) => listOfUser(services, params, 'sessions'),
      },
      {
        path: '/users/:user/factors',
        handle: ({ params }: ConsoleCall<OneUser>) => listOfUser(services, params, 'factors'),
      },
      {
        path: '/users/:user/organizations',
        handle: ({ params }: ConsoleCall<OneUser>) => listOfUser(services, params, 'organizations'),
      },
    ],
    actions: [
      {
        method: 'POST',
        path: '/users/invite',
        role: 'administrator',
        operation: 'user.invite',
        body: bodyOf({ email: { type: 'string', minLength: 3, maxLength: 320 } }, ['email']),
        detail: (body: { readonly email: string }) => body,
        async handle(call: ConsoleCall<object, { email: string }>) {
          await invite(auth, adminRequest(auth, call), { email: call.body.email })
        },
      },
      ...banActions(auth),
      {
        method: 'DELETE',
        path: '/users/:user/factors',
        role: 'administrator',
        operation: 'user.reset_factors',
        async handle(call: ConsoleCall<OneUser>) {
          const { id } = await getUser(auth, userIdOf(call.params.user))
          for (const factor of await listFactors(auth.store, id)) {
            const params = { user_id: id, factor_id: factor.id }
            await adminDeleteFactor(auth, adminRequest(auth, call), params)
          }
        },
      },
      {
        method: 'DELETE',
        path: '/users/:user/sessions',
        role: 'administrator',
        operation: 'user.end_sessions',
        async handle({ params }: ConsoleCall<OneUser>) {
          const { id } = await getUser(auth, userIdOf(params.user))
          await endSessions(auth.store, { userId: id, scope: 'global' })
        },
      },
      consoleRoleAction(auth),
    ],
  }
}

function banActions(auth: AuthServices): ConsoleArea['actions'] {
  const ban = async (call: ConsoleCall<OneUser>, duration: string): Promise<void> => {
    const { id } = await getUser(auth, userIdOf(call.params.user))
    if (id === call.administrator.userId) throw ownAccount()
    await adminUpdateUser(
      auth,
      adminRequest(auth, call),
      { ban_duration: duration },
      {
        user_id: id,
      },
    )
  }
  return [
    {
      method: 'POST',
      path: '/users/:user/ban',
      role: 'administrator',
      operation: 'user.ban',
      body: bodyOf({ hours: { type: 'integer', minimum: 1, maximum: BAN_HOURS_MAX } }, ['hours']),
      detail: (body: { readonly hours: number }) => body,
      handle: (call: ConsoleCall<OneUser, { hours: number }>) => ban(call, `${call.body.hours}h`),
    },
    {
      method: 'POST',
      path: '/users/:user/unban',
      role: 'administrator',
      operation: 'user.unban',
      handle: (call: ConsoleCall<OneUser>) => ban(call, 'none'),
    },
  ]
}

function consoleRoleAction(auth: AuthServices): ConsoleArea['actions'][number] {
  return {
    method: 'POST',
    path: '/users/:user/console-role',
    role: 'administrator',
    operation: 'user.set_console_role',
    body: bodyOf({ role: { enum: [...CONSOLE_ROLES, 'none'] } }, ['role']),
    detail: (body: { readonly role: string }) => body,
    async handle(call: ConsoleCall<OneUser, { role: ConsoleRole | 'none' }>) {
      const { id } = await getUser(auth, userIdOf(call.params.user))
      if (id === call.administrator.userId) throw ownAccount()
      const role = call.body.role === 'none' ? null : call.body.role
      const change = { app_metadata: { console_role: role } }
      await adminUpdateUser(auth, adminRequest(auth, call), change, { user_id: id })
    },
  }
}

function ownAccount(): Error {
  return failure.conflict('Administrators do not change their own access: ask another one.', {
    code: 'own_account',
  })
}

/** An administrator's request to the user server, whose audit rows then name the administrator. */
function adminRequest(
  auth: AuthServices,
  call: { readonly request: FastifyRequest; readonly administrator: Administrator },
): AdminRequest {
  return {
    ...describeRequest(auth, call.request, undefined),
    // Links in mails lead to the site, not to the console.
    redirectTo: auth.config.site.url,
    caller: { kind: 'admin', role: call.administrator.name, claims: {} },
  }
}

const SUMMARY = `u.id, u.email, u.phone, u.role, u.app_metadata ->> 'console_role' as console_role,
  u.created_at, u.last_sign_in_at, u.banned_until, u.is_anonymous, u.invited_at,
  coalesce(u.email_confirmed_at, u.phone_confirmed_at) as confirmed_at`

function listUsers(
  { pool, prefix }: UserAreaServices,
  { query, page }: { readonly query?: string; readonly page?: number },
) {
  return readPage(pool, {
    page,
    values: [query],
    text: `select ${SUMMARY},
        (select count(*)::int from ${prefix}mfa_factors f
          where f.user_id = u.id and f.status = 'verified') as factors,
        (select count(*)::int from ${prefix}sessions s where s.user_id = u.id) as sessions
      from ${prefix}users u
      where u.deleted_at is null and ($1::text is null or u.id::text = lower($1)
        or position(lower($1) in u.email) > 0 or position($1 in u.phone) > 0
        or position(lower($1) in lower(u.user_metadata ->> 'full_name')) > 0)
      order by u.created_at desc, u.id`,
  })
}

function listOfUser(
  { pool, prefix }: UserAreaServices,
  { user }: OneUser,
  what: 'sessions' | 'factors' | 'organizations',
) {
  const texts = {
    sessions: `select id, aal, ip, user_agent, created_at, refreshed_at from ${prefix}sessions
      where user_id = $1 order by created_at desc, id`,
    factors: `select id, factor_type, friendly_name, status, created_at from ${prefix}mfa_factors
      where user_id = $1 order by created_at, id`,
    organizations: `select o.id, o.name, m.role from ${prefix}organization_members m
      join ${prefix}organizations o on o.id = m.organization_id
      where m.user_id = $1 and o.deleted_at is null order by m.created_at, o.id`,
  }
  return readPage(pool, { text: texts[what], values: [userIdOf(user)] })
}
