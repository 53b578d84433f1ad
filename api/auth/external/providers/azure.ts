import { ownIssuer, profileOfClaims } from '#api/auth/external/profile.ts'
import type { IdTokenRule, ProviderRow } from '#api/auth/external/row.ts'
import { textAt } from '#shared/json.ts'

const DEFAULT_URL = 'https://login.microsoftonline.com/common'

const idToken: IdTokenRule = {
  issuer: (config) => `${ownIssuer(DEFAULT_URL)(config)}/v2.0`,
  // For several tenants the issuer is a pattern, which the token's tenant must match.
  issuerOf: (pattern, claims) => pattern.replace('{tenantid}', textAt(claims, 'tid')),
  profile: (claims, { url }) =>
    profileOfClaims(claims, { isVerified: isAzureVerified(claims, url), keepsOthers: true }),
}

/** Sign-in with Microsoft Entra ID (Azure). */
export const azure: ProviderRow = {
  authorize: '/oauth2/v2.0/authorize',
  token: '/oauth2/v2.0/token',
  isBelowUrl: true,
  defaultUrl: DEFAULT_URL,
  scopes: ['openid'],
  clientAuth: 'body',
  usesPkce: true,
  idToken,
  profile: async (source) => idToken.profile(await source.claims(), source.config),
}

/** The tenant of personal accounts, whose addresses Microsoft verifies. */
const PERSONAL_TENANT = '9188040d-6c67-4c5b-b112-36a304b66dad'
const SEVERAL_TENANTS = ['common', 'organizations']

/**
 * Applications add the claim `xms_edov`. Without it, the tenant's administrator chose the address.
 * Anyone may have a tenant, so only the operator's own one is trusted.
 */
function isAzureVerified(claims: Readonly<Record<string, unknown>>, url: string): boolean {
  const { xms_edov: edov, tid } = claims
  if (edov !== undefined) return [true, 'true', 1, '1'].includes(edov as never)
  const [tenant = ''] = new URL(url || DEFAULT_URL).pathname.slice(1).split('/')
  return tid === PERSONAL_TENANT || !SEVERAL_TENANTS.includes(tenant)
}
