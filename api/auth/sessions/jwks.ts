import { json, type Answer } from '#api/auth/context.ts'
import type { AuthServices } from '#api/auth/services.ts'

/** The public keys by which anybody can check access tokens; the shared secret has none. */
export async function jwks(services: AuthServices): Promise<Answer> {
  return json({ keys: services.accessTokens.jwks() }, { 'cache-control': 'public, max-age=600' })
}
