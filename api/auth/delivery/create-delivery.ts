import { createProviders } from '#api/auth/external/providers.ts'
import type { RequestSecrets } from '#api/auth/external/request-secrets.ts'
import type { CaptchaVerifier, Providers, SmsSender } from '#api/auth/ports.ts'
import type { Clock } from '#shared/clock.ts'
import type { AuthConfig } from '#shared/config/auth.ts'
import type { Logger } from '#shared/logger.ts'
import { createGuardedFetch } from '#shared/net/guarded-fetch.ts'

import { createCaptchaVerifier } from './captcha.ts'
import { createMailer, type SmtpMailer } from './mailer.ts'
import { createSmsSender } from './sms.ts'

/** The clients of external services: mail, SMS, CAPTCHA and identity providers. */
export interface Delivery {
  readonly mailer: SmtpMailer
  readonly sms: SmsSender
  readonly captcha: CaptchaVerifier
  readonly providers: Providers
  /** Closes the connections to the mail server. */
  close(): void
}

/** Builds mail, SMS, CAPTCHA and identity providers from the settings, without network calls. */
export function createDelivery(options: {
  readonly config: AuthConfig
  readonly clock: Clock
  readonly log: Logger
  /** Shared by the API processes; held in this process if absent. */
  readonly requestSecrets?: RequestSecrets
}): Delivery {
  const { config, clock, log, requestSecrets } = options
  const { site, external } = config
  const timeoutMs = site.internalHttpTimeoutSeconds * 1000
  const mailer = createMailer({
    smtp: config.smtp,
    mailer: config.mailer,
    siteUrl: site.url,
    clock,
    log,
  })
  // The operator's own instance of a provider, or a replacement of a gateway, may be in a private
  // network.
  const hasOwnInstance = Object.values(external.providers).some(
    ({ isEnabled, url }) => isEnabled && url !== '',
  )
  return {
    mailer,
    sms: createSmsSender({
      config: config.sms,
      fetch: createGuardedFetch({ timeoutMs, allowsPrivateAddresses: true }),
      clock,
    }),
    captcha: createCaptchaVerifier(config.captcha),
    providers: createProviders({
      external,
      fetch: createGuardedFetch({ timeoutMs, allowsPrivateAddresses: hasOwnInstance }),
      clock,
      ...(requestSecrets !== undefined && { secrets: requestSecrets }),
    }),
    close: () => mailer.close(),
  }
}
