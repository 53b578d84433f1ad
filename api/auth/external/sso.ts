import type { Answer } from '#api/auth/context.ts'
import { authFailure } from '#api/auth/errors.ts'

/** SAML is not supported; clients expect this error. */
export async function sso(): Promise<Answer> {
  throw authFailure('saml_provider_disabled')
}
