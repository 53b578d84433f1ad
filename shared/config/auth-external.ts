import type { EnvReader } from './env-reader.ts'
import { PROVIDER_IDS, type ProviderId } from './provider-ids.ts'

/** External identity providers. */
export interface ExternalConfig {
  readonly providers: Readonly<Record<ProviderId, ProviderConfig>>
  /** Where users land after an external sign-in; empty for the URL that the request names. */
  readonly redirectUrl: string
  /** How long a PKCE flow may take from its code to the exchange. */
  readonly flowStateTtlSeconds: number
  /** A further audience of Apple's id tokens. */
  readonly iosBundleId: string
  /** Issuers whose id tokens are accepted without naming a provider. */
  readonly allowedIdTokenIssuers: readonly string[]
}

/** The settings of one provider. */
export interface ProviderConfig {
  readonly isEnabled: boolean
  /** The first is used for redirects; all are accepted audiences of id tokens. */
  readonly clientIds: readonly string[]
  readonly secret: string
  readonly redirectUri: string
  /** Base URL in place of the provider's public one; empty for the public one. */
  readonly url: string
  readonly skipsNonceCheck: boolean
  /** Accept users without an email address. */
  readonly isEmailOptional: boolean
}

const FLOW_STATE_SECONDS_MIN = 300
// Providers without a public instance need a URL.
const WITHOUT_PUBLIC_HOST: readonly ProviderId[] = ['keycloak', 'oidc']

/** Reads the settings of every provider; a provider is checked only when it is enabled. */
export function readExternalConfig(env: EnvReader): ExternalConfig {
  env.section('User server: external identity providers')
  const providers = Object.fromEntries(PROVIDER_IDS.map((id) => [id, readProvider(env, id)]))
  const ttl = env.seconds('AUTH_EXTERNAL_FLOW_STATE_EXPIRY_DURATION', {
    about: 'validity of the code of a PKCE flow, at least 300 s',
    fallback: FLOW_STATE_SECONDS_MIN,
  })
  return {
    providers: providers as Record<ProviderId, ProviderConfig>,
    redirectUrl: env.string('AUTH_EXTERNAL_REDIRECT_URL', {
      about: 'page that users reach after an external sign-in; overrides the requested page',
    }),
    flowStateTtlSeconds: Math.max(FLOW_STATE_SECONDS_MIN, ttl),
    iosBundleId: env.string('AUTH_EXTERNAL_IOS_BUNDLE_ID', {
      about: "further accepted audience of Apple's id tokens",
    }),
    allowedIdTokenIssuers: env.list('AUTH_EXTERNAL_ALLOWED_ID_TOKEN_ISSUERS', {
      about: 'issuers of id tokens that are accepted without naming a provider',
      fallback: ['https://appleid.apple.com', 'https://accounts.google.com'],
    }),
  }
}

function readProvider(env: EnvReader, id: ProviderId): ProviderConfig {
  const prefix = `AUTH_EXTERNAL_${id.toUpperCase()}`
  const config: ProviderConfig = {
    isEnabled: env.bool(`${prefix}_ENABLED`, { about: `sign-in with ${id}`, fallback: false }),
    clientIds: env.list(`${prefix}_CLIENT_ID`, { about: 'OAuth 2.0 client id, or several' }),
    secret: env.string(`${prefix}_SECRET`, { about: 'OAuth 2.0 client secret', isSecret: true }),
    redirectUri: env.string(`${prefix}_REDIRECT_URI`, {
      about: 'URL of /callback as registered with the provider',
    }),
    url: env.url(`${prefix}_URL`, {
      about: 'base URL of the provider, in place of the public one',
    }),
    skipsNonceCheck: env.bool(`${prefix}_SKIP_NONCE_CHECK`, {
      about: 'accept id tokens whose nonce does not match',
      fallback: false,
    }),
    isEmailOptional: env.bool(`${prefix}_EMAIL_OPTIONAL`, {
      about: 'accept users without an email address',
      fallback: false,
    }),
  }
  if (config.isEnabled) checkProvider(env, id, { prefix, config })
  return config
}

function checkProvider(
  env: EnvReader,
  id: ProviderId,
  row: { prefix: string; config: ProviderConfig },
): void {
  const { prefix, config } = row
  const missing = [
    ...(config.clientIds.length === 0 ? ['CLIENT_ID'] : []),
    ...(config.secret === '' ? ['SECRET'] : []),
    ...(config.redirectUri === '' ? ['REDIRECT_URI'] : []),
    ...(config.url === '' && WITHOUT_PUBLIC_HOST.includes(id) ? ['URL'] : []),
  ]
  for (const name of missing) env.problem(`${prefix}_${name} is required when ${id} is enabled`)
}
