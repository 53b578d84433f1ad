import type { Clock } from '#shared/clock.ts'
import type { ExternalConfig, ProviderConfig } from '#shared/config/auth-external.ts'
import { PROVIDER_IDS, type ProviderId } from '#shared/config/provider-ids.ts'
import { failure, ServiceError } from '#shared/errors.ts'
import type { GuardedFetch } from '#shared/net/guarded-fetch.ts'

import { invalid } from '#api/auth/errors.ts'
import type { Provider, Providers } from '#api/auth/ports.ts'
import { createIdTokens } from './id-tokens.ts'
import { OAUTH_ROWS } from './oauth-rows.ts'
import { createOauth2Provider } from './oauth2.ts'
import { OIDC_ROWS } from './oidc-rows.ts'
import { MORE_OAUTH_ROWS } from './more-oauth-rows.ts'
import { createMemoryRequestSecrets, type RequestSecrets } from './request-secrets.ts'
import type { ProviderRow } from './row.ts'
import { createTwitter } from './twitter.ts'

/** Every provider of OAuth 2.0; Twitter has its own file. */
const PROVIDER_ROWS: Readonly<Record<Exclude<ProviderId, 'twitter'>, ProviderRow>> = {
  ...OIDC_ROWS,
  ...OAUTH_ROWS,
  ...MORE_OAUTH_ROWS,
}

/** Makes the providers that the settings enable. */
export function createProviders(options: {
  readonly external: ExternalConfig
  readonly fetch: GuardedFetch
  readonly clock: Clock
  /** Where OAuth 1.0a request secrets wait; in this process if absent. */
  readonly secrets?: RequestSecrets
}): Providers {
  const { external, fetch, clock } = options
  const secrets = options.secrets ?? createMemoryRequestSecrets(clock)
  const idTokens = createIdTokens({ fetch, clock })
  const make = (id: ProviderId, config: ProviderConfig): Provider =>
    id === 'twitter'
      ? createTwitter({ config, fetch, clock, secrets })
      : createOauth2Provider({ id, row: PROVIDER_ROWS[id], config, external, fetch, idTokens })
  const enabled = new Map<string, Provider>(
    PROVIDER_IDS.filter((id) => external.providers[id].isEnabled).map((id) => [
      id,
      withFailures(make(id, external.providers[id])),
    ]),
  )
  return {
    allIds: PROVIDER_IDS,
    enabledIds: () => [...enabled.keys()],
    idTokenIssuer: (id) => idTokenIssuer(external, id),
    get(id) {
      const provider = enabled.get(id)
      if (provider !== undefined) return provider
      const isKnown = (PROVIDER_IDS as readonly string[]).includes(id)
      throw invalid(
        isKnown
          ? 'Unsupported provider: provider is not enabled'
          : `Unsupported provider: Provider ${id.slice(0, 64)} could not be found`,
        'provider',
      )
    },
  }
}

function idTokenIssuer(external: ExternalConfig, id: string): string | undefined {
  const row = Object.hasOwn(PROVIDER_ROWS, id)
    ? (PROVIDER_ROWS as Readonly<Record<string, ProviderRow>>)[id]
    : undefined
  return row?.idToken?.issuer(external.providers[id as ProviderId])
}

// A provider that cannot be reached is an expected failure, also before the visitor is sent there.
function withFailures(provider: Provider): Provider {
  return {
    ...provider,
    async authorizationUrl(request) {
      try {
        return await provider.authorizationUrl(request)
      } catch (error) {
        if (error instanceof ServiceError) throw error
        throw failure.internal('Error getting the address of the external provider', {
          code: 'unexpected_failure',
          cause: error,
        })
      }
    },
  }
}
