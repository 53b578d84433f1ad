import { type Answer, type AuthRequest, json } from '#api/auth/context.ts'
import { authFailure, invalid, OAuthError } from '#api/auth/errors.ts'
import type { Provider } from '#api/auth/ports.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { startSession, tokenResponse } from '#api/auth/sessions/start-session.ts'
import { inTransaction } from '#api/auth/store.ts'
import type { ProviderId } from '#shared/config/provider-ids.ts'

import { decideAccount } from './external-account.ts'
import { linkToUser, requireLinking } from './link-to-user.ts'

/** Grant `id_token`: an id token that the provider's own library obtained on the device. */
export async function exchangeIdToken(
  services: AuthServices,
  request: AuthRequest,
  body: {
    readonly id_token?: string
    readonly provider?: string
    readonly access_token?: string
    readonly nonce?: string
    readonly client_id?: string
    readonly issuer?: string
    readonly link_identity?: boolean
  },
): Promise<Answer> {
  if (!body.id_token) throw new OAuthError('invalid request', 'id_token required')
  const { nonce, access_token: accessToken, client_id: clientId, issuer } = body
  if (!body.provider && !(clientId && issuer)) {
    throw new OAuthError('invalid request', 'provider or client_id and issuer required')
  }
  const linking = body.link_identity ? await requireLinkingUser(services, request) : undefined
  const id = body.provider || providerOfIssuer(services, issuer as string, clientId as string)
  const provider = requireProvider(services, id)
  const profile = await provider.verify(body.id_token, {
    ...(nonce !== undefined && { nonce }),
    ...(accessToken !== undefined && { accessToken }),
    ...(clientId !== undefined && { clientId }),
    ...(issuer !== undefined && { issuer }),
  })
  const visitor = { providerId: id, profile }
  const user =
    linking === undefined
      ? (await decideAccount(services, request, visitor)).user
      : await linkToUser(services, request, { ...linking, visitor })
  const started = await inTransaction(services.store, (store) =>
    startSession(store, { user, proof: { method: 'oauth', provider: id }, request }),
  )
  return json(await tokenResponse(services, started))
}

async function requireLinkingUser(services: AuthServices, { caller }: AuthRequest) {
  if (caller?.kind !== 'user') {
    throw new OAuthError('invalid request', 'Linking requires a valid user authentication')
  }
  await requireLinking(services, caller)
  return { userId: caller.user.id, session: caller.session }
}

function requireProvider(services: AuthServices, id: string): { verify: Verify } {
  const issuer = services.providers.idTokenIssuer(id)
  if (issuer === undefined) {
    throw invalid(`Custom OIDC provider "${id.slice(0, 64)}" not allowed`, 'provider')
  }
  if (!services.providers.enabledIds().includes(id)) {
    const message = `Provider (issuer ${JSON.stringify(issuer || id)}) is not enabled`
    throw authFailure('provider_disabled', { message, param: 'provider' })
  }
  return { verify: services.providers.get(id).verifyIdToken as Verify }
}

type Verify = NonNullable<Provider['verifyIdToken']>

// An issuer is compared with fixed URLs, and never contacted because a client names it.
const WELL_KNOWN_ISSUERS: Readonly<Record<string, string>> = {
  'https://appleid.apple.com': 'apple',
  'https://accounts.google.com': 'google',
}

function providerOfIssuer(services: AuthServices, issuer: string, clientId: string): string {
  const { providers } = services.config.external
  const owner = services.providers
    .enabledIds()
    .find(
      (id) =>
        services.providers.idTokenIssuer(id) === issuer &&
        providers[id as ProviderId].clientIds.includes(clientId),
    )
  if (owner !== undefined) return owner
  const isAllowed = services.config.external.allowedIdTokenIssuers.includes(issuer)
  const id = WELL_KNOWN_ISSUERS[issuer] ?? (isAllowed ? 'oidc' : undefined)
  if (!isAllowed || id === undefined) {
    throw invalid(`Custom OIDC provider "${issuer}" not allowed`, 'issuer')
  }
  return id
}
