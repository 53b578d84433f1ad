/** The seventeen external identity providers of the specification, by their identifiers. */
export const SPECIFIED_PROVIDER_IDS = [
  'apple',
  'azure',
  'bitbucket',
  'discord',
  'facebook',
  'figma',
  'github',
  'gitlab',
  'google',
  'keycloak',
  'linkedin',
  'notion',
  'slack',
  'spotify',
  'twitch',
  'twitter',
  'workos',
] as const

/** Providers beyond the specification, and `oidc`: any issuer with OpenID Connect. */
const ADDED_PROVIDER_IDS = [
  'fly',
  'kakao',
  'linkedin_oidc',
  'slack_oidc',
  'snapchat',
  'zoom',
  'oidc',
] as const

/** Every provider that can be switched on. */
export const PROVIDER_IDS = [...SPECIFIED_PROVIDER_IDS, ...ADDED_PROVIDER_IDS] as const

/** The identifier of an identity provider. */
export type ProviderId = (typeof PROVIDER_IDS)[number]
