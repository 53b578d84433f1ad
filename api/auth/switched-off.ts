import { Type } from '#shared/schema-types.ts'

import { json } from './context.ts'
import { authFailure } from './errors.ts'
import type { Guard } from './guards.ts'
import { type Route, route } from './route.ts'

/**
 * Features that this server does not have, with the answers of a server where they are disabled.
 */
const REFUSALS = {
  saml: () => authFailure('saml_provider_disabled'),
  ssoProvider: () => authFailure('sso_provider_not_found'),
  oauthServer: () => authFailure('feature_disabled', { message: 'OAuth server is disabled' }),
} as const

const IdParams = Type.Object({ id: Type.String({ maxLength: 255 }) })

function off(
  row: `${Route['method']} /${string}`,
  operation: string,
  guard: Guard,
  refusal: keyof typeof REFUSALS,
): Route {
  const [method, path] = row.split(' ') as [Route['method'], string]
  return route({
    method,
    path,
    operation,
    guard,
    isHidden: true,
    ...(path.includes('/:id') && { params: IdParams }),
    flow: async () => {
      throw REFUSALS[refusal]()
    },
  })
}

// biome-ignore format: one row, one line: this table is what a security review reads.
/** Routes of absent features; clients read that the feature is off instead of an unknown path. */
export const SWITCHED_OFF: readonly Route[] = [
  off('GET /sso/saml/metadata', 'auth.saml.metadata', 'public', 'saml'),
  off('POST /sso/saml/acs', 'auth.saml.acs', 'public', 'saml'),
  route({ method: 'GET', path: '/admin/sso/providers', operation: 'auth.admin.listSsoProviders', guard: 'admin', isHidden: true, flow: async () => json({ items: null }) }),
  off('POST /admin/sso/providers', 'auth.admin.createSsoProvider', 'admin', 'saml'),
  off('GET /admin/sso/providers/:id', 'auth.admin.getSsoProvider', 'admin', 'ssoProvider'),
  off('PUT /admin/sso/providers/:id', 'auth.admin.updateSsoProvider', 'admin', 'ssoProvider'),
  off('DELETE /admin/sso/providers/:id', 'auth.admin.deleteSsoProvider', 'admin', 'ssoProvider'),
  off('GET /admin/oauth/clients', 'auth.admin.listOauthClients', 'admin', 'oauthServer'),
  off('POST /admin/oauth/clients', 'auth.admin.createOauthClient', 'admin', 'oauthServer'),
  off('GET /admin/oauth/clients/:id', 'auth.admin.getOauthClient', 'admin', 'oauthServer'),
  off('PUT /admin/oauth/clients/:id', 'auth.admin.updateOauthClient', 'admin', 'oauthServer'),
  off('DELETE /admin/oauth/clients/:id', 'auth.admin.deleteOauthClient', 'admin', 'oauthServer'),
  off('POST /admin/oauth/clients/:id/regenerate_secret', 'auth.admin.renewOauthSecret', 'admin', 'oauthServer'),
  off('GET /.well-known/oauth-authorization-server', 'auth.oauth.metadata', 'public', 'oauthServer'),
  off('POST /oauth/clients/register', 'auth.oauth.register', 'public', 'oauthServer'),
  off('GET /oauth/authorize', 'auth.oauth.authorize', 'public', 'oauthServer'),
  off('POST /oauth/token', 'auth.oauth.token', 'public', 'oauthServer'),
  off('GET /oauth/authorizations/:id', 'auth.oauth.authorization', 'public', 'oauthServer'),
  off('POST /oauth/authorizations/:id/consent', 'auth.oauth.consent', 'public', 'oauthServer'),
  off('GET /user/oauth/grants', 'auth.oauth.grants', 'user', 'oauthServer'),
  off('DELETE /user/oauth/grants', 'auth.oauth.revokeGrant', 'user', 'oauthServer'),
]
