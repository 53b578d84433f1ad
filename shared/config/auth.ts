import { type ExternalConfig, readExternalConfig } from './auth-external.ts'
import { type HooksConfig, readHooksConfig } from './auth-hooks.ts'
import { isPublicSecret, type JwtConfig, readJwtConfig } from './auth-jwt.ts'
import {
  type MailerConfig,
  readMailerConfig,
  readSmtpConfig,
  type SmtpConfig,
} from './auth-mail.ts'
import {
  type MfaConfig,
  type PasswordConfig,
  readMfaConfig,
  readPasswordConfig,
  readSecurityConfig,
  readSessionsConfig,
  type SecurityConfig,
  type SessionsConfig,
} from './auth-policies.ts'
import { type RateLimitsConfig, readRateLimitsConfig } from './auth-rate-limits.ts'
import { type CaptchaConfig, readCaptchaConfig, readSmsConfig, type SmsConfig } from './auth-sms.ts'
import {
  checkWebAuthnConfig,
  type PasskeyConfig,
  readPasskeyConfig,
  readWebAuthnConfig,
  type WebAuthnConfig,
} from './auth-webauthn.ts'
import type { EnvReader } from './env-reader.ts'

/** The settings of the user server, nested by subject. */
export interface AuthConfig {
  readonly site: SiteConfig
  readonly signup: SignupConfig
  readonly jwt: JwtConfig
  readonly password: PasswordConfig
  readonly security: SecurityConfig
  readonly sessions: SessionsConfig
  readonly mailer: MailerConfig
  readonly smtp: SmtpConfig
  readonly sms: SmsConfig
  readonly captcha: CaptchaConfig
  readonly hooks: HooksConfig
  readonly mfa: MfaConfig
  readonly webauthn: WebAuthnConfig
  readonly passkey: PasskeyConfig
  readonly rateLimits: RateLimitsConfig
  readonly external: ExternalConfig
  readonly inherited: InheritedConfig
  readonly cleanup: CleanupConfig
  /** One line for each deprecated setting in use, logged at start. */
  readonly deprecations: readonly string[]
}

/** URLs of the site and of this server. */
interface SiteConfig {
  /** Base URL of the site; redirects to its origin are permitted. */
  readonly url: string
  /** Globs of further permitted redirects. */
  readonly uriAllowList: readonly string[]
  /** URL under which this server is reached; the base of links in mails. */
  readonly externalUrl: string
  readonly maxRequestDurationSeconds: number
  /** Additional headers that browsers may send; an empty list allows any header. */
  readonly corsAllowedHeaders: readonly string[]
  /** Time limit of calls to providers and gateways. */
  readonly internalHttpTimeoutSeconds: number
}

/** The permitted ways to sign up. */
interface SignupConfig {
  readonly isDisabled: boolean
  readonly isEmailEnabled: boolean
  readonly isMagicLinkEnabled: boolean
  readonly isPhoneEnabled: boolean
  readonly isAnonymousEnabled: boolean
}

/** The periodic clean-up. */
interface CleanupConfig {
  readonly isEnabled: boolean
  readonly intervalSeconds: number
  /** Users who signed up but confirmed nothing are deleted at this age; 0 for never. */
  readonly unconfirmedUserTtlSeconds: number
  /** Days after which audit log entries are deleted; 0 keeps them. */
  readonly auditRetentionDays: number
}

/** Features kept for compatibility; they may be removed without notice. */
interface InheritedConfig {
  /** Shared secret with an operator; only of use to a multi-instance server. */
  readonly operatorToken: string
  /** Only of use to a multi-instance server. */
  readonly apiEndpoint: string
  /** Users whose role is this group count as administrators of app_metadata. */
  readonly adminGroupName: string
}

/** Deprecated settings; a notice is logged when one is set. */
const DEPRECATED_SETTINGS = [
  { name: 'AUTH_OPERATOR_TOKEN', notice: 'multi-instance mode is an inherited feature' },
  { name: 'AUTH_API_ENDPOINT', notice: 'multi-instance mode is an inherited feature' },
  {
    name: 'AUTH_JWT_ADMIN_GROUP_NAME',
    notice: 'group information is an inherited feature; use AUTH_JWT_ADMIN_ROLES',
  },
  {
    name: 'AUTH_MFA_ENABLED',
    notice: 'use AUTH_MFA_TOTP_ENROLL_ENABLED and AUTH_MFA_TOTP_VERIFY_ENABLED',
  },
] as const

/** Reads every setting of the user server. */
export function readAuthConfig(env: EnvReader): AuthConfig {
  const site = readSiteConfig(env)
  const signup = readSignupConfig(env)
  const jwt = readJwtConfig(env)
  const password = readPasswordConfig(env)
  const security = readSecurityConfig(env)
  const sessions = readSessionsConfig(env)
  const mailer = readMailerConfig(env)
  const smtp = readSmtpConfig(env)
  const sms = readSmsConfig(env)
  const captcha = readCaptchaConfig(env)
  const hooks = readHooksConfig(env)
  env.section('User server: second factors')
  const mfaSwitch = env.optional('AUTH_MFA_ENABLED', {
    about: 'deprecated: turns TOTP on or off',
  })
  const mfa = readMfaConfig(env, mfaSwitch)
  env.section('User server: passkeys and WebAuthn')
  const webauthn = readWebAuthnConfig(env, site.url)
  const passkey = readPasskeyConfig(env)
  if (passkey.isEnabled || mfa.webauthn.canEnroll || mfa.webauthn.canVerify) {
    checkWebAuthnConfig(env, webauthn)
  }
  const rateLimits = readRateLimitsConfig(env)
  const external = readExternalConfig(env)
  const inherited = readInheritedConfig(env)
  const cleanup = readCleanupConfig(env)
  if (mailer.isAutoconfirm && mailer.allowsUnverifiedSignIns) {
    env.problem(
      'AUTH_MAILER_ALLOW_UNVERIFIED_EMAIL_SIGN_INS cannot go with AUTH_MAILER_AUTOCONFIRM',
    )
  }
  if (isPublicSecret(jwt.secret) && isServedToOthers(site.externalUrl)) {
    env.problem('AUTH_JWT_SECRET is a published example: it may only serve on localhost')
  }
  const inUse: Readonly<Record<string, boolean>> = {
    AUTH_OPERATOR_TOKEN: inherited.operatorToken !== '',
    AUTH_API_ENDPOINT: inherited.apiEndpoint !== '',
    AUTH_JWT_ADMIN_GROUP_NAME: inherited.adminGroupName !== DEFAULT_ADMIN_GROUP,
    AUTH_MFA_ENABLED: mfaSwitch !== undefined,
  }
  const deprecations = DEPRECATED_SETTINGS.filter((setting) => inUse[setting.name]).map(
    (setting) => `${setting.name} is deprecated: ${setting.notice}`,
  )
  return {
    site,
    signup,
    jwt,
    password,
    security,
    sessions,
    mailer,
    smtp,
    sms,
    captcha,
    hooks,
    mfa,
    webauthn,
    passkey,
    rateLimits,
    external,
    inherited,
    cleanup,
    deprecations,
  }
}

const DEFAULT_ADMIN_GROUP = 'admin'

const SITE_URL = 'AUTH_SITE_URL'

function readSiteConfig(env: EnvReader): SiteConfig {
  env.section('User server')
  return {
    url: requiredUrl(
      env,
      SITE_URL,
      'base URL of your site; redirects to its scheme, host and port are permitted',
    ),
    uriAllowList: env.list('AUTH_URI_ALLOW_LIST', {
      about: 'further permitted redirect_to values, with globs such as https://*.example.com/**',
    }),
    externalUrl: requiredUrl(
      env,
      ['AUTH_API_EXTERNAL_URL', 'API_EXTERNAL_URL'],
      'public URL of this server; links in mails begin with it',
    ),
    maxRequestDurationSeconds: env.seconds('AUTH_API_MAX_REQUEST_DURATION', {
      about: 'time limit of a request to the user server',
      fallback: 10,
      isTimer: true,
    }),
    corsAllowedHeaders: env.list(['AUTH_CORS_ALLOWED_HEADERS', 'CORS_ALLOWED_HEADERS'], {
      about:
        'request headers that browsers may send to the user server besides the usual ones; any if unset',
    }),
    internalHttpTimeoutSeconds: env.seconds('AUTH_INTERNAL_HTTP_TIMEOUT', {
      about: 'time limit of calls to identity providers and SMS gateways',
      fallback: 10,
      isTimer: true,
    }),
  }
}

function requiredUrl(env: EnvReader, names: string | readonly string[], about: string): string {
  const value = env.required(names, { about })
  const isWeb = /^https?:\/\//i.test(value) && URL.canParse(value)
  if (value === '' || isWeb || (names === SITE_URL && isDeepLink(value))) return value
  const name = typeof names === 'string' ? names : names[0]
  env.problem(`${name} must be a URL, not "${value}"`)
  return value
}

// Whether the URL uses https. Test set-ups with other host names must still start.
function isServedToOthers(externalUrl: string): boolean {
  const url = URL.parse(externalUrl)
  return url?.protocol === 'https:' && !/^(localhost|127\..*|\[::1\])$/.test(url.hostname)
}

// Mobile apps have sites such as myapp://home.
function isDeepLink(value: string): boolean {
  return /^(?!https?:)[a-z][a-z0-9+.-]*:\/\//i.test(value) && URL.canParse(value)
}

function readSignupConfig(env: EnvReader): SignupConfig {
  return {
    isDisabled: env.bool('AUTH_DISABLE_SIGNUP', {
      about: 'when true, users are created by invitation only',
      fallback: false,
    }),
    isEmailEnabled: env.bool('AUTH_EXTERNAL_EMAIL_ENABLED', {
      about: 'sign-up and sign-in by email',
      fallback: true,
    }),
    isMagicLinkEnabled: env.bool('AUTH_EXTERNAL_EMAIL_MAGIC_LINK_ENABLED', {
      about: 'sign-in by links and codes sent by email',
      fallback: true,
    }),
    isPhoneEnabled: env.bool('AUTH_EXTERNAL_PHONE_ENABLED', {
      about: 'sign-up and sign-in by phone',
      fallback: false,
    }),
    isAnonymousEnabled: env.bool('AUTH_EXTERNAL_ANONYMOUS_USERS_ENABLED', {
      about: 'anonymous sign-ins',
      fallback: false,
    }),
  }
}

function readInheritedConfig(env: EnvReader): InheritedConfig {
  env.section('User server: inherited settings')
  return {
    operatorToken: env.string('AUTH_OPERATOR_TOKEN', {
      about: 'deprecated: shared secret with an operator, multi-instance mode only',
      isSecret: true,
    }),
    apiEndpoint: env.string('AUTH_API_ENDPOINT', {
      about: 'deprecated: multi-instance mode only',
    }),
    adminGroupName: env.string('AUTH_JWT_ADMIN_GROUP_NAME', {
      about: 'deprecated: users with this role may write their own app_metadata',
      fallback: DEFAULT_ADMIN_GROUP,
    }),
  }
}

function readCleanupConfig(env: EnvReader): CleanupConfig {
  env.section('User server: clean-up')
  return {
    isEnabled: env.bool('AUTH_DB_CLEANUP_ENABLED', {
      about: 'regularly delete expired sessions, tokens and challenges',
      fallback: true,
    }),
    intervalSeconds: env.seconds('MILLRACE_CLEANUP_INTERVAL', {
      about: 'time between two clean-ups',
      fallback: 300,
      isTimer: true,
    }),
    unconfirmedUserTtlSeconds: env.seconds('MILLRACE_UNCONFIRMED_USER_TTL', {
      about: 'age at which users who never confirmed an address are deleted; 0 keeps them',
      fallback: 7 * 86_400,
    }),
    auditRetentionDays: env.int('MILLRACE_AUDIT_RETENTION_DAYS', {
      about: 'days after which audit log entries are deleted; 0 keeps them',
      fallback: 365,
      max: 36_500,
    }),
  }
}
