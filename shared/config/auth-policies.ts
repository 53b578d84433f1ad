import type { EnvReader } from './env-reader.ts'

/** The rules of passwords and their hashing. */
export interface PasswordConfig {
  readonly lengthMin: number
  /** A password needs a character of each set. */
  readonly requiredCharacters: readonly string[]
  readonly breachCheck: {
    readonly isEnabled: boolean
    /** Refuse passwords while the service of leaked passwords cannot be reached. */
    readonly isFailClosed: boolean
    readonly url: string
  }
  readonly argon2: {
    readonly memoryKib: number
    readonly iterations: number
    readonly parallelism: number
  }
  /** Hashes computed at once; 0 means one per core. */
  readonly hashConcurrency: number
  /** When more hashes than this wait, sign-ins are refused with 503. */
  readonly hashQueueMax: number
}

/** Refresh tokens, reauthentication and manual linking. */
export interface SecurityConfig {
  readonly isRefreshTokenRotationEnabled: boolean
  readonly refreshTokenReuseIntervalSeconds: number
  readonly requiresReauthentication: boolean
  readonly isManualLinkingEnabled: boolean
}

/** When sessions end by themselves; 0 means never. */
export interface SessionsConfig {
  readonly timeboxSeconds: number
  readonly inactivityTimeoutSeconds: number
  /** A session that lacks the second factor of its user ends at this age. */
  readonly lowAalSeconds: number
  /** A new sign-in ends the older sessions of the same tag. */
  readonly isSinglePerUser: boolean
  /** The first tag also applies to sessions without a tag. */
  readonly tags: readonly string[]
}

/** Second factors. */
export interface MfaConfig {
  readonly totp: { readonly canEnroll: boolean; readonly canVerify: boolean }
  readonly phone: {
    readonly canEnroll: boolean
    readonly canVerify: boolean
    readonly otpLength: number
    readonly gapSeconds: number
    readonly template: string
  }
  readonly webauthn: { readonly canEnroll: boolean; readonly canVerify: boolean }
  readonly challengeTtlSeconds: number
  readonly factorTtlSeconds: number
  readonly enrolledFactorsMax: number
  readonly verifiedFactorsMax: number
}

/** Reads the rules of passwords. */
export function readPasswordConfig(env: EnvReader): PasswordConfig {
  env.section('User server: passwords')
  return {
    lengthMin: Math.max(
      PASSWORD_LENGTH_FLOOR,
      env.int('AUTH_PASSWORD_MIN_LENGTH', {
        about: 'shortest password; never less than 6',
        fallback: PASSWORD_LENGTH_FLOOR,
        max: 72,
      }),
    ),
    requiredCharacters: env.colonSets('AUTH_PASSWORD_REQUIRED_CHARACTERS', {
      about: 'sets of characters, separated by colons; a password needs a character of each set',
    }),
    breachCheck: {
      isEnabled: env.bool('AUTH_PASSWORD_HIBP_ENABLED', {
        about: 'refuse passwords that are known from breaches',
        fallback: false,
      }),
      isFailClosed: env.bool('AUTH_PASSWORD_HIBP_FAIL_CLOSED', {
        about: 'refuse new passwords while the breach service is unreachable',
        fallback: false,
      }),
      url: env.url('MILLRACE_PASSWORD_HIBP_URL', {
        about: 'breach service (k-anonymity range queries)',
        fallback: 'https://api.pwnedpasswords.com',
      }),
    },
    argon2: {
      memoryKib: env.int('MILLRACE_ARGON2_MEMORY_KIB', {
        about: 'memory of one password hash',
        fallback: 19_456,
        min: 8,
        max: 4_194_304,
      }),
      iterations: env.int('MILLRACE_ARGON2_ITERATIONS', {
        about: 'passes of one password hash',
        fallback: 2,
        min: 2,
        max: 100,
      }),
      parallelism: env.int('MILLRACE_ARGON2_PARALLELISM', {
        about: 'parallelism of one password hash',
        fallback: 1,
        min: 1,
        max: 64,
      }),
    },
    hashConcurrency: env.int('MILLRACE_PASSWORD_HASH_CONCURRENCY', {
      about: 'password hashes computed at once; 0 means one per core',
      fallback: 0,
      max: 256,
    }),
    hashQueueMax: env.int('MILLRACE_PASSWORD_HASH_QUEUE_MAX', {
      about: 'number of waiting password hashes beyond which sign-ins are temporarily refused',
      fallback: 1000,
      min: 1,
    }),
  }
}

const PASSWORD_LENGTH_FLOOR = 6

/** Reads the rules of refresh tokens and reauthentication. */
export function readSecurityConfig(env: EnvReader): SecurityConfig {
  env.section('User server: security')
  return {
    isRefreshTokenRotationEnabled: env.bool('AUTH_SECURITY_REFRESH_TOKEN_ROTATION_ENABLED', {
      about: 'reuse of an old refresh token revokes its family',
      fallback: true,
    }),
    refreshTokenReuseIntervalSeconds: env.seconds('AUTH_SECURITY_REFRESH_TOKEN_REUSE_INTERVAL', {
      about:
        'seconds in which the previous refresh token may be used again, for lost answers and parallel tabs',
      fallback: 10,
    }),
    requiresReauthentication: env.bool('AUTH_SECURITY_UPDATE_PASSWORD_REQUIRE_REAUTHENTICATION', {
      about: 'require a nonce to change the password in an older session',
      fallback: false,
    }),
    isManualLinkingEnabled: env.bool('AUTH_SECURITY_MANUAL_LINKING_ENABLED', {
      about: 'users may link and unlink identities',
      fallback: false,
    }),
  }
}

/** Reads the rules of sessions. */
export function readSessionsConfig(env: EnvReader): SessionsConfig {
  return {
    timeboxSeconds: env.seconds('AUTH_SESSIONS_TIMEBOX', {
      about: 'longest life of a session; 0 means no limit',
      fallback: 0,
    }),
    inactivityTimeoutSeconds: env.seconds('AUTH_SESSIONS_INACTIVITY_TIMEOUT', {
      about: 'time without a refresh after which a session ends; 0 means no limit',
      fallback: 0,
    }),
    lowAalSeconds: env.seconds('AUTH_SESSIONS_ALLOW_LOW_AAL', {
      about: 'longest life of a session without the second factor of its user; 0 means no limit',
      fallback: 0,
    }),
    isSinglePerUser: env.bool('AUTH_SESSIONS_SINGLE_PER_USER', {
      about: 'a new sign-in ends the older sessions of the user',
      fallback: false,
    }),
    tags: env.list('AUTH_SESSIONS_TAGS', {
      about: 'tags of sessions; AUTH_SESSIONS_SINGLE_PER_USER applies to each tag separately',
    }),
  }
}

/** Reads the rules of second factors; the deprecated switch gives TOTP its defaults. */
export function readMfaConfig(env: EnvReader, deprecatedSwitch: string | undefined): MfaConfig {
  const isTotpOn = !['false', '0', 'no', 'off', 'f'].includes(deprecatedSwitch?.toLowerCase() ?? '')
  const bool = (name: string, about: string, fallback: boolean): boolean =>
    env.bool(`AUTH_MFA_${name}`, { about, fallback })
  const int = (name: string, about: string, fallback: number): number =>
    env.int(`AUTH_MFA_${name}`, { about, fallback })
  const seconds = (name: string, about: string, fallback: number): number =>
    env.seconds(`AUTH_MFA_${name}`, { about, fallback })
  return {
    totp: {
      canEnroll: bool('TOTP_ENROLL_ENABLED', 'users may add TOTP factors', isTotpOn),
      canVerify: bool('TOTP_VERIFY_ENABLED', 'users may verify TOTP factors', isTotpOn),
    },
    phone: {
      canEnroll: bool('PHONE_ENROLL_ENABLED', 'users may add phone factors', false),
      canVerify: bool('PHONE_VERIFY_ENABLED', 'users may verify phone factors', false),
      otpLength: int('PHONE_OTP_LENGTH', 'digits of the code of a phone factor', 6),
      gapSeconds: seconds('PHONE_MAX_FREQUENCY', 'seconds between two codes', 60),
      template: env.string('AUTH_MFA_PHONE_TEMPLATE', {
        about: 'text of the message for a phone factor',
        fallback: 'Your code is {{ .Code }}',
      }),
    },
    webauthn: {
      canEnroll: bool('WEB_AUTHN_ENROLL_ENABLED', 'users may add WebAuthn factors', false),
      canVerify: bool('WEB_AUTHN_VERIFY_ENABLED', 'users may verify WebAuthn factors', false),
    },
    challengeTtlSeconds: seconds('CHALLENGE_EXPIRY_DURATION', 'validity of a challenge', 300),
    factorTtlSeconds: seconds('FACTOR_EXPIRY_DURATION', 'time to verify a new factor', 300),
    enrolledFactorsMax: int('MAX_ENROLLED_FACTORS', 'factors per user', 10),
    verifiedFactorsMax: int('MAX_VERIFIED_FACTORS', 'verified factors per user', 10),
  }
}
