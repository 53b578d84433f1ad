import { type ErrorKind, type FailureDetails, ServiceError } from '#shared/errors.ts'

/** Every `error_code` of the user server with its kind and default message. */
const AUTH_ERRORS = {
  anonymous_provider_disabled: ['unprocessable', 'Anonymous sign-ins are disabled'],
  bad_code_verifier: [
    'invalidRequest',
    'code challenge does not match previously saved code verifier',
  ],
  bad_json: ['invalidRequest', 'Could not parse request body as JSON'],
  bad_jwt: ['accessDenied', 'invalid JWT: unable to parse or verify signature'],
  bad_oauth_callback: ['invalidRequest', 'OAuth callback with missing authorization code missing'],
  bad_oauth_state: ['invalidRequest', 'OAuth callback with invalid state'],
  captcha_failed: ['invalidRequest', 'captcha protection: request disallowed'],
  conflict: [
    'conflict',
    'Too many concurrent token refresh requests on the same session or refresh token',
  ],
  email_address_not_authorized: [
    'invalidRequest',
    'Email address cannot be used as it is not authorized',
  ],
  email_conflict_identity_not_deletable: [
    'unprocessable',
    'Unable to unlink identity due to email conflict',
  ],
  email_exists: ['unprocessable', 'A user with this email address has already been registered'],
  email_not_confirmed: ['invalidRequest', 'Email not confirmed'],
  email_provider_disabled: ['invalidRequest', 'Email signups are disabled'],
  email_address_invalid: ['invalidRequest', 'Email address is invalid'],
  feature_disabled: ['notFound', 'This feature is disabled'],
  flow_state_expired: ['unprocessable', 'invalid flow state, flow state has expired'],
  flow_state_not_found: ['notFound', 'invalid flow state, no valid flow state found'],
  hook_payload_invalid_content_type: ['invalidRequest', 'The hook did not answer with JSON'],
  hook_payload_over_size_limit: ['unprocessable', 'Payload size exceeded size limit'],
  hook_timeout: ['unprocessable', 'Failed to reach hook within maximum time'],
  hook_timeout_after_retry: ['unprocessable', 'Failed to reach hook after maximum retries'],
  identity_already_exists: ['unprocessable', 'Identity is already linked'],
  identity_not_found: ['unprocessable', "Identity doesn't exist"],
  insufficient_aal: ['accessDenied', 'AAL2 required to enroll a new factor'],
  invalid_credentials: ['invalidRequest', 'Invalid login credentials'],
  invite_not_found: ['notFound', 'Invite not found'],
  manual_linking_disabled: ['notFound', 'Manual linking is disabled'],
  mfa_challenge_expired: [
    'unprocessable',
    'MFA challenge has expired, verify against another challenge or create a new challenge.',
  ],
  mfa_factor_name_conflict: [
    'unprocessable',
    'A factor with this friendly name for this user already exists',
  ],
  mfa_factor_not_found: ['notFound', 'Factor not found'],
  mfa_ip_address_mismatch: ['unprocessable', 'Challenge and verify IP addresses mismatch.'],
  mfa_phone_enroll_not_enabled: ['unprocessable', 'MFA enroll is disabled for Phone'],
  mfa_phone_verify_not_enabled: ['unprocessable', 'MFA verification is disabled for Phone'],
  mfa_totp_enroll_not_enabled: ['unprocessable', 'MFA enroll is disabled for TOTP'],
  mfa_totp_verify_not_enabled: ['unprocessable', 'MFA verification is disabled for TOTP'],
  mfa_verification_failed: ['unprocessable', 'Invalid TOTP code entered'],
  mfa_verification_rejected: [
    'accessDenied',
    'Further MFA verification attempts will be rejected.',
  ],
  mfa_verified_factor_exists: ['unprocessable', 'A verified phone factor already exists'],
  mfa_webauthn_enroll_not_enabled: ['unprocessable', 'MFA enroll is disabled for WebAuthn'],
  mfa_webauthn_verify_not_enabled: ['unprocessable', 'MFA verification is disabled for WebAuthn'],
  no_authorization: ['unauthenticated', 'This endpoint requires a Bearer token'],
  not_admin: ['accessDenied', 'User not allowed'],
  otp_disabled: ['unprocessable', 'Signups not allowed for otp'],
  otp_expired: ['accessDenied', 'Token has expired or is invalid'],
  over_email_send_rate_limit: ['rateLimited', 'email rate limit exceeded'],
  over_request_rate_limit: ['rateLimited', 'Request rate limit reached'],
  over_sms_send_rate_limit: ['rateLimited', 'SMS rate limit exceeded'],
  passkey_disabled: ['notFound', 'Passkeys are disabled'],
  phone_exists: ['unprocessable', 'A user with this phone number has already been registered'],
  phone_not_confirmed: ['invalidRequest', 'Phone not confirmed'],
  phone_provider_disabled: ['invalidRequest', 'Phone signups are disabled'],
  provider_disabled: ['invalidRequest', 'Provider is not enabled'],
  provider_email_needs_verification: ['unprocessable', 'Unverified email with the provider'],
  reauthentication_needed: ['invalidRequest', 'Password update requires reauthentication'],
  reauthentication_not_valid: ['unprocessable', 'Nonce has expired or is invalid'],
  refresh_token_already_used: ['invalidRequest', 'Invalid Refresh Token: Already Used'],
  refresh_token_not_found: ['invalidRequest', 'Invalid Refresh Token: Refresh Token Not Found'],
  request_timeout: ['deadline', 'Processing this request timed out, please retry after a moment.'],
  same_password: ['unprocessable', 'New password should be different from the old password.'],
  saml_provider_disabled: ['notFound', 'SAML 2.0 is disabled'],
  session_expired: ['invalidRequest', 'Invalid Refresh Token: Session Expired'],
  session_not_found: ['accessDenied', 'Session from session_id claim in JWT does not exist'],
  signup_disabled: ['unprocessable', 'Signups not allowed for this instance'],
  single_identity_not_deletable: [
    'unprocessable',
    'User must have at least 1 identity after unlinking',
  ],
  sso_provider_not_found: ['notFound', 'SSO Identity Provider not found'],
  too_many_enrolled_mfa_factors: [
    'unprocessable',
    'Maximum number of verified factors reached, unenroll to continue',
  ],
  too_many_passkeys: ['unprocessable', 'Maximum number of passkeys reached'],
  unexpected_audience: ['invalidRequest', "Token audience doesn't match request audience"],
  // The status is the specification's; other servers answer 422.
  user_already_exists: ['invalidRequest', 'User already registered'],
  user_banned: ['accessDenied', 'User is banned'],
  user_not_found: ['accessDenied', 'User from sub claim in JWT does not exist'],
  validation_failed: ['invalidRequest', 'The request is not valid'],
  web3_provider_disabled: ['unprocessable', 'Web3 provider is disabled'],
  webauthn_challenge_expired: ['invalidRequest', 'Challenge has expired'],
  webauthn_challenge_not_found: ['invalidRequest', 'Challenge not found or already used'],
  webauthn_credential_exists: ['unprocessable', 'This credential is already registered'],
  webauthn_verification_failed: ['invalidRequest', 'Credential verification failed'],
} as const satisfies Record<string, readonly [ErrorKind, string]>

/** The stable slug of a failure of the user server. */
export type AuthErrorCode = keyof typeof AUTH_ERRORS

interface Details extends Pick<FailureDetails, 'param' | 'cause' | 'retryAfterSeconds'> {
  /** Replaces the default message. */
  readonly message?: string
  /** Replaces the default kind and thus the status. */
  readonly kind?: ErrorKind
}

/** A failure by its code: `throw authFailure('otp_expired')`. */
export function authFailure(code: AuthErrorCode, details: Details = {}): ServiceError {
  const [kind, message] = AUTH_ERRORS[code]
  const { message: ownMessage, kind: ownKind, ...rest } = details
  return new ServiceError(ownKind ?? kind, ownMessage ?? message, { code, ...rest })
}

/** An invalid request: 400 `validation_failed`. */
export function invalid(message: string, param?: string): ServiceError {
  return authFailure('validation_failed', { message, ...(param !== undefined && { param }) })
}

/** Why a password is too weak. */
export type WeakPasswordReason = 'length' | 'characters' | 'pwned'

/** 422 with the list of reasons that clients show. */
export class WeakPasswordError extends ServiceError {
  readonly reasons: readonly WeakPasswordReason[]

  constructor(message: string, reasons: readonly WeakPasswordReason[]) {
    super('unprocessable', message, { code: 'weak_password', param: 'password' })
    this.name = 'WeakPasswordError'
    this.reasons = reasons
  }
}

/** The refusal of a hook, with the status that the hook chose. */
export class HookError extends ServiceError {
  readonly #status: number

  constructor(status: number, message: string) {
    const code = status === 500 ? 'unexpected_failure' : 'unknown'
    super(status < 500 ? 'unprocessable' : 'internal', message, { code })
    this.name = 'HookError'
    this.#status = status
  }

  override get status(): number {
    return this.#status
  }
}

/** A failure in the shape of OAuth 2.0, always 400: `{error, error_description}`. */
export class OAuthError extends ServiceError {
  readonly error: string

  constructor(error: string, description: string, cause?: unknown) {
    super('invalidRequest', description, { code: 'validation_failed', cause })
    this.name = 'OAuthError'
    this.error = error
  }
}
