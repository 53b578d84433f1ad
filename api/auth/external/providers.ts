import { invalid } from '#api/auth/errors.ts'
import { apple } from '#api/auth/external/providers/apple.ts'
import { azure } from '#api/auth/external/providers/azure.ts'
import { bitbucket } from '#api/auth/external/providers/bitbucket.ts'
import { discord } from '#api/auth/external/providers/discord.ts'
import { facebook } from '#api/auth/external/providers/facebook.ts'
import { figma } from '#api/auth/external/providers/figma.ts'
import { fly } from '#api/auth/external/providers/fly.ts'
import { github } from '#api/auth/external/providers/github.ts'
import { gitlab } from '#api/auth/external/providers/gitlab.ts'
import { google } from '#api/auth/external/providers/google.ts'
import { kakao } from '#api/auth/external/providers/kakao.ts'
import { keycloak } from '#api/auth/external/providers/keycloak.ts'
import { linkedin } from '#api/auth/external/providers/linkedin.ts'
import { linkedinOidc } from '#api/auth/external/providers/linkedin-oidc.ts'
import { notion } from '#api/auth/external/providers/notion.ts'
import { oidc } from '#api/auth/external/providers/oidc.ts'
import { slack } from '#api/auth/external/providers/slack.ts'
import { slackOidc } from '#api/auth/external/providers/slack-oidc.ts'
import { snapchat } from '#api/auth/external/providers/snapchat.ts'
import { spotify } from '#api/auth/external/providers/spotify.ts'
import { twitch } from '#api/auth/external/providers/twitch.ts'
import { createTwitter } from '#api/auth/external/providers/twitter.ts'
import { workos } from '#api/auth/external/providers/workos.ts'
import { zoom } from '#api/auth/external/providers/zoom.ts'
import type { Provider, Providers } from '#api/auth/ports.ts'
import type { Clock } from '#shared/clock.ts'
import type { ExternalConfig, ProviderConfig } from '#shared/config/auth-external.ts'
import { PROVIDER_IDS, type ProviderId } from '#shared/config/provider-ids.ts'
import { failure, ServiceError } from '#shared/errors.ts'
import type { GuardedFetch } from '#shared/net/guarded-fetch.ts'

import { createIdTokens } from './id-tokens.ts'
import { createOauth2Provider } from './oauth2.ts'
import { createMemoryRequestSecrets, type RequestSecrets } from './request-secrets.ts'
import type { ProviderRow } from './row.ts'

/** Every provider of OAuth 2.0; Twitter has its own file. */
const PROVIDER_ROWS: Readonly<Record<Exclude<ProviderId, 'twitter'>, ProviderRow>> = {
  apple,
  azure,
  bitbucket,
  discord,
  facebook,
  figma,
  fly,
  github,
  gitlab,
  google,
  kakao,
  keycloak,
  linkedin,
  linkedin_oidc: linkedinOidc,
  notion,
  oidc,
  slack,
  slack_oidc: slackOidc,
  snapchat,
  spotify,
  twitch,
  workos,
  zoom,
}

/** Creates the providers that the settings enable. */
export function createProviders(options: {
  readonly external: ExternalConfig
  readonly fetch: GuardedFetch
  readonly clock: Clock
  /** The store of OAuth 1.0a request secrets; held in this process if absent. */
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

// An unreachable provider is an expected failure, even before the visitor is redirected.
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
