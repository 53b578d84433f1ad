import type { SecurityEvent } from '#api/auth/audit/audit-log.ts'
import {
  createOutbox,
  type DropReason,
  type MessageOutbox,
} from '#api/auth/delivery/outbox-sender.ts'
import {
  type AddressValidator,
  createAddressValidator,
} from '#api/auth/delivery/validate-address.ts'
import { type AuthHooks, createHooks } from '#api/auth/hooks/hooks.ts'
import { createPasswordHasher, type PasswordHasher } from '#api/auth/passwords/password.ts'
import { type AccessTokens, createAccessTokens } from '#api/auth/sessions/access-token.ts'
import { createGuessLimiter, type GuessLimiter } from '#api/limits/guess-limiter.ts'
import type { Clock } from '#shared/clock.ts'
import type { AuthConfig } from '#shared/config/auth.ts'
import type { Db } from '#shared/db/client.ts'
import type { AuthTables } from '#shared/db/schema/auth.ts'
import type { Logger } from '#shared/logger.ts'

import type { CaptchaVerifier, Mailer, Providers, SmsSender } from './ports.ts'
import { createRateLimits, type RateLimitRedis, type RateLimits } from './rate-limits.ts'
import { createStore, inTransaction, type Store } from './store.ts'

/** The external dependencies of the user server. */
interface AuthDependencies {
  readonly db: Db
  readonly tables: AuthTables
  readonly redis: RateLimitRedis
  /** Put before every key in Redis. */
  readonly redisKeyPrefix: string
  readonly config: AuthConfig
  readonly clock: Clock
  readonly log: Logger
  readonly mailer: Mailer
  readonly sms: SmsSender
  readonly captcha: CaptchaVerifier
  readonly providers: Providers
  readonly version: string
  /** Called after every security event, besides the audit log. */
  readonly onSecurityEvent?: (event: SecurityEvent) => void
  /** Called for every message that is deleted without delivery. */
  readonly onMessageDropped?: (reason: DropReason) => void
  /**
   * Called within the transaction that deletes users, or that transfers the account of an unproven
   * user to the owner of its address, while the users are locked.
   */
  readonly onUsersEnded?: (tx: Db, userIds: readonly string[]) => Promise<void>
}

/** Every collaborator of the flows, built once. */
export interface AuthServices {
  readonly store: Store
  readonly config: AuthConfig
  readonly clock: Clock
  readonly log: Logger
  /** Mails and text messages, delivered after the commit. */
  readonly outbox: MessageOutbox
  readonly sms: Pick<SmsSender, 'testOtp' | 'requireGateway' | 'isRightCode'>
  readonly addresses: AddressValidator
  readonly captcha: CaptchaVerifier
  readonly hooks: AuthHooks
  readonly providers: Providers
  readonly passwords: PasswordHasher
  readonly accessTokens: AccessTokens
  readonly limits: RateLimits
  readonly guesses: GuessLimiter
  readonly version: string
  onSecurityEvent(event: SecurityEvent): void
  onUsersEnded(tx: Db, userIds: readonly string[]): Promise<void>
}

/** Builds the collaborators and imports the signing keys. Fails when a key cannot be used. */
export async function createAuthServices(dependencies: AuthDependencies): Promise<AuthServices> {
  const { db, tables, redis, redisKeyPrefix, config, clock, log } = dependencies
  const { mailer, sms, captcha, providers, version } = dependencies
  const { secretWeakness } = config.jwt
  if (secretWeakness !== undefined) log.warn({ operation: 'auth.secret' }, secretWeakness)
  for (const notice of config.deprecations) log.warn({ operation: 'auth.deprecation' }, notice)
  const store = createStore(db, tables, clock)
  const hooks = createHooks({ config: config.hooks, db, clock, log })
  return {
    config,
    clock,
    log,
    captcha,
    hooks,
    providers,
    version,
    store,
    addresses: createAddressValidator(config.mailer.validation),
    // A send-SMS hook needs no gateway, and sends codes of this server.
    sms: hooks.isEnabled('sendSms')
      ? { testOtp: sms.testOtp, requireGateway: () => undefined }
      : sms,
    outbox: createOutbox({
      store,
      mailer,
      sms,
      hooks,
      clock,
      log,
      secret: config.jwt.secret,
      onDrop: dependencies.onMessageDropped,
    }),
    passwords: createPasswordHasher(config.password, {
      clock,
      waitMsMax: config.site.maxRequestDurationSeconds * 1000,
    }),
    accessTokens: await createAccessTokens(config.jwt, clock),
    limits: createRateLimits({
      redis,
      keyPrefix: `${redisKeyPrefix}auth:`,
      config: config.rateLimits,
      clock,
    }),
    guesses: createGuessLimiter({
      redis,
      clock,
      log,
      config: config.rateLimits.guesses,
      keyPrefix: redisKeyPrefix,
    }),
    onUsersEnded: async (tx, userIds) => dependencies.onUsersEnded?.(tx, userIds),
    onSecurityEvent: (event) => dependencies.onSecurityEvent?.(event),
  }
}

/**
 * Runs the work of a request in one transaction: a request that fails leaves nothing behind, and
 * its messages are delivered after the commit.
 */
export function inOneTransaction<T>(
  services: AuthServices,
  work: (services: AuthServices) => Promise<T>,
): Promise<T> {
  return inTransaction(services.store, (store) => work({ ...services, store }))
}
