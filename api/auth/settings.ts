import { type Answer, json } from './context.ts'
import type { AuthServices } from './services.ts'

/** The settings that a sign-in page needs. */
export async function settings(services: AuthServices): Promise<Answer> {
  const { signup, mailer, sms, mfa, passkey } = services.config
  const enabled = new Set(services.providers.enabledIds())
  const external = Object.fromEntries(services.providers.allIds.map((id) => [id, enabled.has(id)]))
  return json({
    external: {
      ...external,
      anonymous_users: signup.isAnonymousEnabled,
      email: signup.isEmailEnabled,
      phone: signup.isPhoneEnabled,
    },
    disable_signup: signup.isDisabled,
    autoconfirm: mailer.isAutoconfirm,
    mailer_autoconfirm: mailer.isAutoconfirm,
    phone_autoconfirm: sms.isAutoconfirm,
    mfa_enabled: [mfa.totp, mfa.phone, mfa.webauthn].some(
      (kind) => kind.canEnroll && kind.canVerify,
    ),
    sms_provider: sms.gateway === 'none' ? '' : sms.gateway,
    saml_enabled: false,
    passkeys_enabled: passkey.isEnabled,
  })
}

/** The public keys with which anyone can check access tokens; the shared secret has none. */
export async function jwks(services: AuthServices): Promise<Answer> {
  return json({ keys: services.accessTokens.jwks() }, { 'cache-control': 'public, max-age=600' })
}

/** The name of this server. Clients check for the name of the server that they were written for. */
export async function health(services: AuthServices): Promise<Answer> {
  return json({
    version: services.version,
    name: 'GoTrue',
    description: 'GoTrue is a user registration and authentication API',
  })
}
