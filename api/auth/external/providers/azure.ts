import { ownIssuer, profileOfClaims } from '#api/auth/external/profile.ts'
import type { IdTokenRule, ProviderRow } from '#api/auth/external/row.ts'
import { textAt } from '#shared/json.ts'

const idToken: IdTokenRule = {
  issuer: (config) => `${ownIssuer('https://login.microsoftonline.com/common')(config)}/v2.0`,
  // For several tenants the issuer is a pattern; the token's tenant must fill it.
  issuerOf: (pattern, claims) => pattern.replace('{tenantid}', textAt(claims, 'tid')),
  profile: (claims) =>
    profileOfClaims(claims, { isVerified: isAzureVerified(claims), keepsOthers: true }),
}

/** Sign-in with Microsoft Entra ID (Azure). */
export const azure: ProviderRow = {
  authorize: '/oauth2/v2.0/authorize',
  token: '/oauth2/v2.0/token',
  isBelowUrl: true,
  defaultUrl: 'https://login.microsoftonline.com/common',
  scopes: ['openid'],
  clientAuth: 'body',
  usesPkce: true,
  idToken,
  profile: async (source) => idToken.profile(await source.claims()),
}

function isAzureVerified(claims: Readonly<Record<string, unknown>>): boolean {
  const edov = claims.xms_edov
  return edov === undefined || [true, 'true', 1, '1'].includes(edov as never)
}
