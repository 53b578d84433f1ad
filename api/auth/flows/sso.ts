import type { Answer } from '../context.ts'
import { authFailure } from '../errors.ts'

/** SAML is not served; clients that offer it want to be told in these words. */
export async function sso(): Promise<Answer> {
  throw authFailure('saml_provider_disabled')
}
