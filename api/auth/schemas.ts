import type { Static, TSchema } from 'typebox'

import { AssertionResponse, AttestationResponse } from '#api/auth/webauthn/schemas.ts'
import { Type } from '#shared/schema-types.ts'

// All fields are optional for the validator; the flow decides which ones a request needs and how it
// reports a missing one. Unknown fields are ignored, as clients of all versions expect.
const text = (description: string, max = 2048) =>
  Type.Optional(Type.String({ description, maxLength: max }))
const flag = (description: string) => Type.Optional(Type.Boolean({ description }))
const metadata = (description: string) =>
  Type.Optional(Type.Record(Type.String(), Type.Unknown(), { description }))

const email = text('email address', 1024)
const phone = text('phone number (E.164)', 64)
const password = text('password', 4096)
const channel = text('the channel: sms or whatsapp')
const pkce = {
  code_challenge: text('PKCE challenge'),
  code_challenge_method: text('s256 or plain'),
}
const captcha = {
  captcha_token: text('answer to the CAPTCHA', 16_384),
  gotrue_meta_security: Type.Optional(
    Type.Object({
      // The Python and Dart clients send null for an absent token.
      captcha_token: Type.Optional(
        Type.Union([Type.String({ maxLength: 16_384 }), Type.Null()], {
          description: 'The answer to the CAPTCHA.',
        }),
      ),
    }),
  ),
}

/** Body of POST /signup. */
export const SignupBody = Type.Object({
  email,
  phone,
  password,
  channel,
  data: metadata('custom user data'),
  ...pkce,
  ...captcha,
})

/** Body of POST /otp and /magiclink. */
export const OtpBody = Type.Object({
  email,
  phone,
  channel,
  create_user: flag('if false, only existing users may sign in'),
  data: metadata('custom user data of a new user'),
  ...pkce,
  ...captcha,
})

/** Body of POST /recover. */
export const RecoverBody = Type.Object({ email, ...pkce, ...captcha })

/** Body of POST /resend. */
export const ResendBody = Type.Object({
  type: text('signup, sms, email_change or phone_change'),
  email,
  phone,
  ...pkce,
  ...captcha,
})

/** Body of POST /invite. */
export const InviteBody = Type.Object({ email, data: metadata('custom user data') })

/** Body of POST /verify. */
export const VerifyBody = Type.Object({
  type: text('signup, invite, recovery, magiclink, email, email_change, sms or phone_change'),
  token: text('the code, or the token of the link'),
  token_hash: text('the token of the link'),
  email,
  phone,
  password,
  redirect_to: text('the page that the client opens next'),
})

/** Query of GET /verify. */
export const VerifyQuery = Type.Object({
  type: text('signup, invite, recovery, magiclink or email_change'),
  token: text('the token of the link'),
  token_hash: text('the token of the link'),
  redirect_to: text('the page that the browser opens next'),
})

/** Body of POST /token, for every grant. */
export const TokenBody = Type.Object({
  email,
  phone,
  password,
  refresh_token: text('for grant_type=refresh_token'),
  auth_code: text('for grant_type=pkce'),
  code_verifier: text('for grant_type=pkce'),
  id_token: text('for grant_type=id_token', 65_536),
  provider: text('for grant_type=id_token'),
  access_token: text('for grant_type=id_token', 65_536),
  nonce: text('for grant_type=id_token'),
  client_id: text('for grant_type=id_token'),
  issuer: text('for grant_type=id_token'),
  link_identity: flag('for grant_type=id_token: add the identity to the signed-in user'),
  grant_type: text('password, refresh_token, pkce or id_token'),
  ...captcha,
})

/** Body of PUT /user. */
export const UserUpdateBody = Type.Object({
  email,
  phone,
  password,
  channel,
  nonce: text('the nonce that GET /reauthenticate sends'),
  data: metadata('custom user data; null deletes a key'),
  app_metadata: metadata('data of the application; may be set by administrators only'),
  ...pkce,
})

/** Body that creates or changes a user. */
export const AdminUserBody = Type.Object({
  id: text('UUID of a new user'),
  aud: text('audience'),
  role: text('role'),
  email,
  phone,
  password,
  password_hash: text('argon2, bcrypt or scrypt hash of an imported user'),
  email_confirm: flag('treat the address as confirmed'),
  phone_confirm: flag('treat the number as confirmed'),
  user_metadata: metadata('custom user data'),
  app_metadata: metadata('data of the application'),
  ban_duration: text('the duration of the ban, such as 24h; none lifts it'),
  nonce: text('ignored for administrators'),
})

/** Body of DELETE /admin/users/{user_id}. */
export const AdminDeleteBody = Type.Object({
  should_soft_delete: flag('keep the row without personal data'),
})

/** Body of POST /admin/generate_link. */
export const GenerateLinkBody = Type.Object({
  type: text('signup, invite, magiclink, recovery, email_change_current or email_change_new'),
  email,
  new_email: email,
  password,
  data: metadata('custom user data'),
  redirect_to: text('the page that the browser opens after the link'),
})

/** Body of POST /factors. */
export const FactorBody = Type.Object({
  factor_type: text('totp, phone or webauthn'),
  friendly_name: text('name shown to the user', 255),
  issuer: text('name shown in the authenticator', 255),
  phone,
})

/** Body of a challenge. */
export const ChallengeBody = Type.Object({ channel })

const challengeId = text('the id that the challenge returned')

/** Body of the answer to a challenge. */
export const FactorVerifyBody = Type.Object({
  challenge_id: challengeId,
  code: text('the code'),
  webauthn: Type.Optional(
    Type.Union(
      [
        Type.Object({
          type: Type.Literal('create'),
          credential_response: AttestationResponse,
        }),
        Type.Object({
          type: Type.Literal('request'),
          credential_response: AssertionResponse,
        }),
      ],
      { description: 'The response of the WebAuthn authenticator.' },
    ),
  ),
})

/** Body that begins the registration of a passkey. */
export const EmptyBody = Type.Object({})

/** Body that ends the registration of a passkey. */
export const PasskeyRegistrationBody = Type.Object({
  challenge_id: challengeId,
  credential: AttestationResponse,
})

/** Body that begins a sign-in by passkey. */
export const PasskeyOptionsBody = Type.Object({ ...captcha })

/** Body that ends a sign-in by passkey. */
export const PasskeySignInBody = Type.Object({
  challenge_id: challengeId,
  credential: AssertionResponse,
})

/** Body that renames a passkey. */
export const PasskeyUpdateBody = Type.Object({
  friendly_name: text('name shown to the user'),
})

/** Body that changes a second factor. */
export const AdminFactorBody = Type.Object({
  friendly_name: text('name shown to the user', 255),
  phone,
})

/** Body of POST /sso. */
export const SsoBody = Type.Object({
  provider_id: text('SAML provider'),
  domain: text('email domain'),
  ...captcha,
})

/** Query of the routes that redirect to a provider. */
export const AuthorizeQuery = Type.Object(
  {
    provider: text('one of the provider identifiers'),
    scopes: text('further scopes, separated by commas or spaces'),
    redirect_to: text('the page that the browser opens at the end of the sign-in'),
    invite_token: text('token of an invitation'),
    skip_http_redirect: text('if true, answer {url} instead of redirecting'),
    ...pkce,
  },
  { additionalProperties: true },
)

/** Query of POST /logout. */
export const LogoutQuery = Type.Object({ scope: text('global, local or others') })

/** Query of lists. */
export const PageQuery = Type.Object({
  page: text('the number of the page, from 1'),
  per_page: text('entries per page'),
  sort: text('created_at asc or created_at desc'),
  filter: text('part of an address or a name'),
  query: text('author:, action: or type: and a text'),
})

/** Query of POST /token. */
export const GrantQuery = Type.Object({
  grant_type: text('password, refresh_token, pkce or id_token'),
})

/** Query of the routes that send a mail. */
export const RedirectQuery = Type.Object({
  redirect_to: text('the page that links in mails finally lead to'),
})

const id = (description: string) => Type.String({ description, maxLength: 128 })
/** Path of a user. */
export const UserParams = Type.Object({ user_id: id('user') })
/** Path of an own second factor. */
export const FactorParams = Type.Object({ factor_id: id('factor') })
/** Path parameters of a user's factor. */
export const UserFactorParams = Type.Object({ user_id: id('user'), factor_id: id('factor') })
/** Path of an own passkey. */
export const PasskeyParams = Type.Object({ passkey_id: id('passkey') })
/** Path of a user's passkey. */
export const UserPasskeyParams = Type.Object({ user_id: id('user'), passkey_id: id('passkey') })
/** Path of an identity. */
export const IdentityParams = Type.Object({ identity_id: id('identity') })

/** The value that a schema describes. */
export type Parsed<Schema extends TSchema> = Static<Schema>
