import { startCleanUp } from '#api/auth/cleanup.ts'
import { createDelivery } from '#api/auth/delivery/create-delivery.ts'
import { DROP_REASONS } from '#api/auth/delivery/outbox-sender.ts'
import { createRedisRequestSecrets } from '#api/auth/external/request-secrets.ts'
import { hasVerifiedFactor } from '#api/auth/factors/factors.ts'
import { isAdmin } from '#api/auth/guards.ts'
import { type AuthServices, createAuthServices } from '#api/auth/services.ts'
import { findSession } from '#api/auth/sessions/sessions.ts'
import {
  createAccessTokenVerifier,
  type VerifiedAccessToken,
} from '#api/auth/sessions/verify-access-token.ts'
import { findUserById, isBanned } from '#api/auth/users/user-store.ts'
import { endMemberships } from '#api/organizations/account-deletion.ts'
import { type Invitations, openInvitations } from '#api/organizations/invitations.ts'
import { type Organizations, openOrganizations } from '#api/organizations/organizations.ts'
import { observeHasher, observeMailer, observeSms } from '#api/telemetry/observe-delivery.ts'
import type { ApiTelemetry } from '#api/telemetry/open-telemetry.ts'
import type { UserAccess } from '#api/v1/credentials.ts'
import { membershipsOf } from '#shared/db/organizations.ts'
import { authTables } from '#shared/db/schema/auth.ts'
import { failure } from '#shared/errors.ts'

import { noteSecurityEvents } from './recorded-events.ts'
import type { Services } from './services.ts'

/** The collaborators of the user server and its interface for other surfaces. */
export interface UserServer {
  readonly services: AuthServices
  readonly organizations: Organizations
  readonly invitations: Invitations
  /**
   * The user of an access token under `/v1`; undefined for an invalid token. Credentials that
   * outlast the token (`outlasts`), such as a key, require a live session and the user's second
   * factor. Throws `user_banned`, `session_not_found` and `insufficient_aal`.
   */
  verifyAccess(accessToken: string, outlasts: boolean): Promise<UserAccess | undefined>
  /**
   * The user id of an access token of a current administrator, empty for a token without a user;
   * undefined for other tokens.
   */
  findAdministrator(accessToken: string): Promise<string | undefined>
  close(): Promise<void>
}

type Foundation = Pick<
  Services,
  | 'config'
  | 'clock'
  | 'log'
  | 'database'
  | 'redis'
  | 'organizationTables'
  | 'activityWriter'
  | 'background'
>

/** Builds the user server; fails when a signing key cannot be used. */
export async function openUserServer(
  foundation: Foundation,
  version: string,
  { metrics, tracing }: ApiTelemetry,
): Promise<UserServer> {
  const { config, clock, log, database, redis, organizationTables } = foundation
  const { auth } = config
  const authTable = authTables(config.database.tablePrefix)
  const { organizationsPerUser: perUserMax } = config.limits
  const { users } = authTable
  const organizations = openOrganizations(database.db, organizationTables, { users, perUserMax })
  const invitations = openInvitations(database.db, organizationTables, { users, organizations })
  const noteActivity = noteSecurityEvents(foundation)
  const redisKeyPrefix = `${config.infra.redisPrefix}:`
  const delivery = createDelivery({
    config: auth,
    requestSecrets: createRedisRequestSecrets(redis, redisKeyPrefix),
    clock,
    log,
  })
  // A rate needs a series before its first event, so that the first loss is visible.
  for (const reason of DROP_REASONS) metrics.messagesDropped.inc({ reason }, 0)
  const built = await createAuthServices({
    redis,
    redisKeyPrefix,
    clock,
    log,
    version,
    config: auth,
    ...delivery,
    mailer: observeMailer(delivery.mailer, metrics, tracing),
    sms: observeSms(delivery.sms, auth.sms.gateway, { metrics, tracing }),
    db: database.db,
    tables: authTable,
    onMessageDropped: (reason) => metrics.messagesDropped.inc({ reason }),
    onUsersEnded: (tx, userIds) => endMemberships(tx, organizationTables, userIds),
    onSecurityEvent(event) {
      metrics.authEvents.inc({ action: event.action })
      noteActivity(event)
    },
  })
  const services = { ...built, passwords: observeHasher(built.passwords, metrics, tracing) }
  const verify = createAccessTokenVerifier(services.accessTokens, auth.jwt.audience)
  const stopCleanUp = startCleanUp(services)
  services.outbox.start()
  return {
    services,
    organizations,
    invitations,
    async verifyAccess(accessToken, outlasts) {
      const verified = await verify(accessToken)
      const user = verified && (await activeUser(services, verified, outlasts))
      if (user === undefined) return undefined
      const isSeen = { isSeen: true }
      const organizations = await membershipsOf(database.db, organizationTables, user.id, isSeen)
      return { userId: user.id, isAnonymous: user.isAnonymous, organizations }
    },
    async findAdministrator(accessToken) {
      const claims = await services.accessTokens.verify(accessToken).catch(() => undefined)
      if (!(await isAdmin(services, claims))) return undefined
      return UUID.test(claims?.sub ?? '') ? claims?.sub : ''
    },
    async close() {
      stopCleanUp()
      await services.outbox.close()
      delivery.close()
    },
  }
}

/**
 * The user of a token. Throws when the user is banned or, for requests that outlast the token,
 * signed out.
 */
async function activeUser(
  services: AuthServices,
  verified: VerifiedAccessToken,
  outlasts: boolean,
): ReturnType<typeof findUserById> {
  const user = await findUserById(services.store, verified.userId)
  if (user === undefined) return undefined
  if (isBanned(user, services.store.now())) throw banned()
  if (outlasts) await mustBeSignedIn(services, verified)
  return user
}

function banned(): Error {
  return failure.accessDenied('This user is banned.', { code: 'user_banned' })
}

async function mustBeSignedIn(
  { store }: AuthServices,
  { userId, sessionId }: VerifiedAccessToken,
): Promise<void> {
  const session = UUID.test(sessionId) ? await findSession(store, sessionId) : undefined
  // Access tokens without a session stay valid until they expire.
  if (sessionId !== '' && session?.userId !== userId) {
    throw failure.unauthenticated('The session of this access token has ended: sign in again.', {
      code: 'session_not_found',
    })
  }
  if (session?.aal === 'aal2' || !(await hasVerifiedFactor(store, userId))) return
  throw failure.accessDenied(
    'This account has a second factor, without which keys, organizations and memberships are not changed. Prove it (POST /factors/{id}/challenge, then POST /factors/{id}/verify) and send the access token of the answer.',
    { code: 'insufficient_aal' },
  )
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i
