import { authTables } from '#shared/db/schema/auth.ts'
import { createGuardedFetch } from '#shared/net/guarded-fetch.ts'
import { membershipsOf } from '#shared/db/organizations.ts'

import { startCleanUp } from './auth/cleanup.ts'
import { createCaptchaVerifier } from './auth/delivery/captcha.ts'
import { createMailer } from './auth/delivery/mailer.ts'
import { createSmsSender } from './auth/delivery/sms.ts'
import { createProviders } from './auth/providers/providers.ts'
import { createRedisRequestSecrets } from './auth/providers/request-secrets.ts'
import { createAuthServices, type AuthServices } from './auth/services.ts'
import { createAccessTokenVerifier } from './auth/verify-access-token.ts'
import type { Services } from './services.ts'
import type { UserAccess } from './v1/credentials.ts'

/** The user server's collaborators, and what the other surfaces ask it. */
export interface UserServer {
  readonly services: AuthServices
  /** What an access token proves under `/v1`; undefined when it proves nothing. */
  verifyAccess(accessToken: string): Promise<UserAccess | undefined>
  /** Whether an access token carries an administrator's role. */
  isAdministrator(accessToken: string): Promise<boolean>
  close(): void
}

type Foundation = Pick<
  Services,
  'config' | 'clock' | 'log' | 'database' | 'redis' | 'organizationTables'
>

/** Builds the user server; fails when a signing key cannot be used. */
export async function openUserServer(foundation: Foundation, version: string): Promise<UserServer> {
  const { config, clock, log, database, redis, organizationTables } = foundation
  const { auth } = config
  const redisKeyPrefix = `${config.infra.redisPrefix}:`
  // Providers and gateways are the operator's own choice and may be inside his network.
  const fetch = createGuardedFetch({
    timeoutMs: auth.site.internalHttpTimeoutSeconds * 1000,
    allowsPrivateAddresses: true,
  })
  const mailer = createMailer({ ...auth, siteUrl: auth.site.url, clock, log })
  const services = await createAuthServices({
    ...{ redis, redisKeyPrefix, clock, log, version, mailer, config: auth },
    db: database.db,
    tables: authTables(config.database.tablePrefix),
    sms: createSmsSender({ config: auth.sms, fetch, clock }),
    captcha: createCaptchaVerifier(auth.captcha),
    providers: createProviders({
      external: auth.external,
      secrets: createRedisRequestSecrets(redis, redisKeyPrefix),
      ...{ fetch, clock },
    }),
  })
  for (const notice of auth.deprecations) log.warn({ operation: 'config.read' }, notice)
  const verify = createAccessTokenVerifier(services.accessTokens)
  const stopCleanUp = startCleanUp(services)
  return {
    services,
    async verifyAccess(accessToken) {
      const verified = await verify(accessToken)
      if (verified === undefined) return undefined
      const { userId } = verified
      return { userId, organizations: await membershipsOf(database.db, organizationTables, userId) }
    },
    async isAdministrator(accessToken) {
      const claims = await services.accessTokens.verify(accessToken).catch(() => undefined)
      return claims?.role !== undefined && auth.jwt.adminRoles.includes(claims.role)
    },
    close() {
      stopCleanUp()
      mailer.close()
    },
  }
}
