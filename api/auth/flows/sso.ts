import type { Answer } from '../context.ts'
import { authFailure } from '../errors.ts'

/** SAML is not supported; clients expect this error. */
export async function sso(): Promise<Answer> {
  throw authFailure('saml_provider_disabled')
}
