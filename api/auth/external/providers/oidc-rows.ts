import { field, textAt } from './json.ts'
import { oneEmail, profileOfClaims, toProfile } from './profile.ts'
import type { IdTokenRule, ProfileSource, ProviderRow } from './row.ts'

const ownIssuer = (fallback: string): IdTokenRule['issuer'] => {
  return ({ url }) => url.replace(/\/+$/, '') || fallback
}

const apple: IdTokenRule = {
  issuer: ownIssuer('https://appleid.apple.com'),
  audiences: ({ iosBundleId }) => (iosBundleId === '' ? [] : [iosBundleId]),
  // Apple vouches for every address, relayed ones too.
  profile: (claims) =>
    profileOfClaims(claims, { isVerified: true, customClaims: ['auth_time', 'is_private_email'] }),
}

const azure: IdTokenRule = {
  issuer: (config) => `${ownIssuer('https://login.microsoftonline.com/common')(config)}/v2.0`,
  // For several tenants the issuer is a pattern; the token's tenant must fill it.
  issuerOf: (pattern, claims) => pattern.replace('{tenantid}', textAt(claims, 'tid')),
  profile: (claims) =>
    profileOfClaims(claims, { isVerified: isAzureVerified(claims), keepsOthers: true }),
}

const standard = (issuer: string, customClaims: readonly string[] = []): IdTokenRule => ({
  issuer: ownIssuer(issuer),
  profile: (claims) => profileOfClaims(claims, { customClaims }),
})

const google = standard('https://accounts.google.com', ['hd'])
const linkedin = standard('https://www.linkedin.com/oauth')
const slack = standard('https://slack.com', [
  'https://slack.com/team_id',
  'https://slack.com/user_id',
])
const keycloak = standard('')
const generic: IdTokenRule = {
  issuer: ownIssuer(''),
  profile: (claims) => profileOfClaims(claims, { keepsOthers: true }),
}

/** Providers that say who a user is in an id token. */
export const OIDC_ROWS = {
  apple: {
    publicEndpoints: {
      authorize: 'https://appleid.apple.com/auth/authorize',
      token: 'https://appleid.apple.com/auth/token',
    },
    scopes: ['email', 'name'],
    clientAuth: 'body',
    parameters: { response_mode: 'form_post' },
    idToken: apple,
    profile: appleProfile,
  },
  azure: {
    authorize: '/oauth2/v2.0/authorize',
    token: '/oauth2/v2.0/token',
    isBelowUrl: true,
    defaultUrl: 'https://login.microsoftonline.com/common',
    scopes: ['openid'],
    clientAuth: 'body',
    usesPkce: true,
    idToken: azure,
    profile: async (source) => azure.profile(await source.claims()),
  },
  google: {
    publicEndpoints: {
      authorize: 'https://accounts.google.com/o/oauth2/v2/auth',
      token: 'https://oauth2.googleapis.com/token',
    },
    scopes: ['openid', 'email', 'profile'],
    clientAuth: 'body',
    usesPkce: true,
    idToken: google,
    profile: async (source) => {
      if (source.tokens.idToken !== '') return google.profile(await source.claims())
      const user = await source.load(source.at('https://www.googleapis.com/userinfo/v2/me'))
      return toProfile({
        issuer: 'https://accounts.google.com',
        subject: textAt(user, 'id'),
        name: textAt(user, 'name'),
        picture: textAt(user, 'picture'),
        emails: oneEmail(textAt(user, 'email'), field(user, 'verified_email') === true),
      })
    },
  },
  keycloak: {
    authorize: '/protocol/openid-connect/auth',
    token: '/protocol/openid-connect/token',
    isBelowUrl: true,
    // Newer versions answer /userinfo only to tokens with the openid scope.
    scopes: ['openid', 'profile', 'email'],
    clientAuth: 'body',
    usesPkce: true,
    idToken: keycloak,
    profile: async (source) => {
      const user = await source.load(source.at('/protocol/openid-connect/userinfo'))
      return profileOfClaims({ ...(user as object), iss: source.at('').replace(/\/$/, '') })
    },
  },
  linkedin_oidc: {
    authorize: 'https://www.linkedin.com/oauth/v2/authorization',
    token: 'https://www.linkedin.com/oauth/v2/accessToken',
    scopes: ['openid', 'email', 'profile'],
    clientAuth: 'body',
    idToken: linkedin,
    profile: async (source) => linkedin.profile(await source.claims()),
  },
  slack_oidc: {
    authorize: 'https://slack.com/openid/connect/authorize',
    token: 'https://slack.com/api/openid.connect.token',
    scopes: ['openid', 'email', 'profile'],
    clientAuth: 'body',
    idToken: slack,
    profile: async (source) => slack.profile(await source.claims()),
  },
  oidc: {
    scopes: ['openid', 'email', 'profile'],
    clientAuth: 'body',
    usesPkce: true,
    idToken: generic,
    profile: async (source) => generic.profile(await source.claims()),
  },
} as const satisfies Record<string, ProviderRow>

function isAzureVerified(claims: Readonly<Record<string, unknown>>): boolean {
  const edov = claims.xms_edov
  return edov === undefined || [true, 'true', 1, '1'].includes(edov as never)
}

// Apple sends the name once, beside the code of the first sign-in, and unsigned.
async function appleProfile(source: ProfileSource) {
  const profile = apple.profile(await source.claims())
  const name = appleName(source.query.user)
  if (name === '') return profile
  return { ...profile, metadata: { ...profile.metadata, name, full_name: name } }
}

function appleName(text: string | undefined): string {
  if (text === undefined || text.length > 2000) return ''
  try {
    const user: unknown = JSON.parse(text)
    const parts = [textAt(user, 'name', 'firstName'), textAt(user, 'name', 'lastName')]
    return parts.filter(Boolean).join(' ')
  } catch {
    // Only the name is lost.
    return ''
  }
}
