import type { ExternalProfile } from '#api/auth/ports.ts'
import type { ExternalConfig, ProviderConfig } from '#shared/config/auth-external.ts'
import type { OutgoingRequest } from '#shared/net/guarded-fetch.ts'

/** The answer of a provider's token endpoint. */
export interface ProviderTokens {
  readonly accessToken: string
  readonly refreshToken: string
  readonly idToken: string
  /** The complete reply, because some providers include the profile in it. */
  readonly reply: unknown
}

/** The inputs of a row's profile mapper. */
export interface ProfileSource {
  readonly config: ProviderConfig
  readonly tokens: ProviderTokens
  /** The fields that the provider sent to /callback. */
  readonly query: Readonly<Record<string, string>>
  /** A URL of the provider, at the configured base URL if there is one. */
  at(address: string): string
  /** GET with the access token; throws unless the answer is a JSON object or list. */
  load(address: string, headers?: OutgoingRequest['headers']): Promise<unknown>
  /** The checked claims of the id token. */
  claims(): Promise<Readonly<Record<string, unknown>>>
}

/** The checks of a provider's id tokens. */
export interface IdTokenRule {
  /** The issuer, whose discovery document names the keys. */
  issuer(config: ProviderConfig): string
  /** The issuer that a token must name, when the discovery document only has a pattern. */
  issuerOf?(pattern: string, claims: Readonly<Record<string, unknown>>): string
  /** Audiences accepted besides the client ids. */
  audiences?(external: ExternalConfig): readonly string[]
  /** The provider's library returns nonces as received, and generates one when it receives none. */
  readonly hasPlainNonce?: true
  profile(claims: Readonly<Record<string, unknown>>, config: ProviderConfig): ExternalProfile
}

/** One provider: its differences from the others. */
export interface ProviderRow {
  /** Absolute URLs; undefined if discovery supplies them. A base URL replaces the origin. */
  readonly authorize?: string
  readonly token?: string
  /**
   * The endpoints that discovery would return at the provider's public host, so that no request is
   * needed.
   */
  readonly publicEndpoints?: { readonly authorize: string; readonly token: string }
  /** The provider has no public host: endpoints are paths below the base URL. */
  readonly isBelowUrl?: true
  /** The base URL by default, for rows whose endpoints are below it. */
  readonly defaultUrl?: string
  readonly scopes: readonly string[]
  /** How the client authenticates at the token endpoint. */
  readonly clientAuth: 'basic' | 'body'
  readonly usesPkce?: true
  readonly parameters?: Readonly<Record<string, string>>
  /** The provider's names for query parameters of /authorize. */
  readonly renames?: Readonly<Record<string, string>>
  readonly idToken?: IdTokenRule
  profile(source: ProfileSource): Promise<ExternalProfile>
}
