import { type Answer, redirect } from '#api/auth/context.ts'
import { withFragment, withQuery } from '#api/auth/redirects/redirect-url.ts'
import { ServiceError } from '#shared/errors.ts'

// The OAuth 2.0 error code of a status.
const OAUTH_ERRORS: Readonly<Record<number, string>> = {
  400: 'invalid_request',
  401: 'unauthorized_client',
  403: 'access_denied',
  500: 'server_error',
  503: 'temporarily_unavailable',
}

// To a browser that returns from a provider these are refusals, not bad requests.
const REFUSALS = ['signup_disabled', 'user_banned', 'provider_email_needs_verification']

/** Redirects the browser with the failure in the URL; bugs go to the error handler. */
export function redirectWithError(
  target: string,
  error: unknown,
  options: { readonly isInQueryToo: boolean; readonly status?: 302 | 303 },
): Answer {
  if (!(error instanceof ServiceError)) throw error
  const { status } = error
  const word = status >= 500 && status !== 503 ? 'server_error' : OAUTH_ERRORS[status]
  const code = error.code ?? 'unexpected_failure'
  const parameters = {
    error: REFUSALS.includes(code) ? 'access_denied' : (word ?? 'invalid_request'),
    error_code: code,
    error_description: error.message,
  }
  const withQueryToo = options.isInQueryToo ? withQuery(target, parameters) : target
  return redirect(withFragment(withQueryToo, parameters), options.status ?? 303)
}
