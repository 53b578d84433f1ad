import type { EnvReader } from './env-reader.ts'

/** The site for which authenticators make credentials, for second factors and passkeys alike. */
export interface WebAuthnConfig {
  readonly rpId: string
  readonly rpDisplayName: string
  /** Origins whose pages may use the credentials. */
  readonly rpOrigins: readonly string[]
  /** How long the challenge of a passkey is valid. */
  readonly challengeTtlSeconds: number
}

/** Passkeys as a first factor. */
export interface PasskeyConfig {
  readonly isEnabled: boolean
  readonly passkeysMax: number
}

/** Reads the settings of WebAuthn; the site of the settings is the default. */
export function readWebAuthnConfig(env: EnvReader, siteUrl: string): WebAuthnConfig {
  const site = /^https?:/i.test(siteUrl) ? URL.parse(siteUrl) : null
  return {
    rpId: env.string('AUTH_WEBAUTHN_RP_ID', {
      about: 'domain that credentials are bound to; the host of AUTH_SITE_URL if unset',
      fallback: site?.hostname ?? '',
    }),
    rpDisplayName: env.string('AUTH_WEBAUTHN_RP_DISPLAY_NAME', {
      about: 'name of the site in the dialog of the browser; the host of the site if unset',
      fallback: site?.host ?? '',
    }),
    rpOrigins: env.list('AUTH_WEBAUTHN_RP_ORIGINS', {
      about: 'origins that may use credentials; the origin of AUTH_SITE_URL if unset',
      fallback: site === null ? [] : [site.origin],
    }),
    challengeTtlSeconds: env.seconds('AUTH_WEBAUTHN_CHALLENGE_EXPIRY_DURATION', {
      about: 'validity of the challenge of a passkey',
      fallback: 300,
    }),
  }
}

/** Reads the settings of passkeys. */
export function readPasskeyConfig(env: EnvReader): PasskeyConfig {
  return {
    isEnabled: env.bool('AUTH_PASSKEY_ENABLED', {
      about: 'users may register passkeys and sign in with them',
      fallback: false,
    }),
    passkeysMax: env.int('AUTH_PASSKEY_MAX_PASSKEYS_PER_USER', {
      about: 'passkeys per user',
      fallback: 10,
      max: 100,
    }),
  }
}

/** Reports settings with which no browser creates a credential. */
export function checkWebAuthnConfig(env: EnvReader, config: WebAuthnConfig): void {
  const { rpId, rpOrigins } = config
  if (!DOMAIN.test(rpId)) {
    env.problem(`AUTH_WEBAUTHN_RP_ID must be a domain such as example.com, not "${rpId}"`)
  }
  if (rpOrigins.length === 0) env.problem('AUTH_WEBAUTHN_RP_ORIGINS must name an origin')
  for (const origin of rpOrigins) {
    if (!isOriginOf(origin, rpId)) {
      env.problem(
        `AUTH_WEBAUTHN_RP_ORIGINS must list origins of ${rpId} such as https://${rpId}, not "${origin}"`,
      )
    }
  }
}

const DOMAIN = /^(localhost|([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z][a-z0-9-]*)$/i

// Apps have no host: android:apk-key-hash:… and ios:bundle-id:….
function isOriginOf(origin: string, rpId: string): boolean {
  if (/^(android:apk-key-hash|ios:bundle-id):./.test(origin)) return true
  const url = URL.parse(origin)
  if (url === null || url.origin !== origin) return false
  const isOwn = url.hostname === rpId || url.hostname.endsWith(`.${rpId}`)
  return isOwn && (url.protocol === 'https:' || url.hostname.endsWith('localhost'))
}
