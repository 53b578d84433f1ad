import { adminAudit } from '#api/auth/admin/audit.ts'
import { adminCreateUser } from '#api/auth/admin/create-user.ts'
import { adminDeleteFactor, adminListFactors, adminUpdateFactor } from '#api/auth/admin/factors.ts'
import { generateLink } from '#api/auth/admin/generate-link.ts'
import { invite } from '#api/auth/admin/invite.ts'
import { adminDeletePasskey, adminListPasskeys } from '#api/auth/admin/passkeys.ts'
import { adminUpdateUser } from '#api/auth/admin/update-user.ts'
import { adminDeleteUser, adminGetUser, adminListUsers } from '#api/auth/admin/users.ts'
import { authorize, authorizeLinking, sso } from '#api/auth/external/authorize.ts'
import { callback } from '#api/auth/external/callback.ts'
import { challengeFactor } from '#api/auth/factors/challenge-factor.ts'
import { enrollFactor } from '#api/auth/factors/enroll-factor.ts'
import { unenrollFactor } from '#api/auth/factors/unenroll-factor.ts'
import { verifyFactor } from '#api/auth/factors/verify-factor.ts'
import { passkeys, removePasskey, updatePasskey } from '#api/auth/passkeys/manage-passkeys.ts'
import {
  beginPasskeyRegistration,
  verifyPasskeyRegistration,
} from '#api/auth/passkeys/register-passkey.ts'
import { beginPasskeySignIn, verifyPasskeySignIn } from '#api/auth/passkeys/sign-in-with-passkey.ts'
import { reauthenticate } from '#api/auth/recovery/reauthenticate.ts'
import { recover } from '#api/auth/recovery/recover.ts'
import { logout } from '#api/auth/sessions/logout.ts'
import { magicLink, otp } from '#api/auth/sign-in/otp.ts'
import { grantTypeOf, linksIdentity, token } from '#api/auth/sign-in/token.ts'
import { verify, verifyLink } from '#api/auth/sign-in/verify.ts'
import { resend } from '#api/auth/sign-up/resend.ts'
import { signup } from '#api/auth/sign-up/signup.ts'
import { identities, unlinkIdentity } from '#api/auth/users/unlink-identity.ts'
import { updateOwnUser, user } from '#api/auth/users/update-user.ts'
import { Type } from '#shared/schema-types.ts'
import { mapOf } from '#shared/schemas.ts'

import { type Route, route } from './route.ts'
import * as schema from './schemas.ts'
import { health, jwks, settings } from './settings.ts'
import { SWITCHED_OFF } from './switched-off.ts'

const ProviderField = Type.String({ maxLength: 65_536 })
// Providers add other fields; those that all of them send are named for the description.
const ProviderFields = mapOf(ProviderField, {
  properties: {
    state: ProviderField,
    code: ProviderField,
    error: ProviderField,
    error_description: ProviderField,
  },
})

// biome-ignore format: one row, one line: this table is what a security review reads.
const PUBLIC: readonly Route[] = [
  route({ method: 'GET', path: '/health', operation: 'auth.health', guard: 'public', flow: ({ services }) => health(services) }),
  route({ method: 'GET', path: '/settings', operation: 'auth.settings', guard: 'public', flow: ({ services }) => settings(services) }),
  route({ method: 'GET', path: '/.well-known/jwks.json', operation: 'auth.jwks', guard: 'public', flow: ({ services }) => jwks(services) }),
  route({ method: 'POST', path: '/signup', operation: 'auth.signup', guard: 'public', limit: (body) => (body.email || body.phone ? 'otp' : 'anonymousUsers'), storesForVisitors: true, captcha: true, body: schema.SignupBody, query: schema.RedirectQuery, flow: ({ services, request, body }) => signup(services, request, body) }),
  route({ method: 'POST', path: '/resend', operation: 'auth.resend', guard: 'public', limit: 'otp', captcha: true, body: schema.ResendBody, query: schema.RedirectQuery, flow: ({ services, request, body }) => resend(services, request, body) }),
  route({ method: 'POST', path: '/otp', operation: 'auth.otp', guard: 'public', limit: 'otp', storesForVisitors: true, captcha: true, body: schema.OtpBody, query: schema.RedirectQuery, flow: ({ services, request, body }) => otp(services, request, body) }),
  route({ method: 'POST', path: '/magiclink', operation: 'auth.magiclink', guard: 'public', limit: 'otp', storesForVisitors: true, captcha: true, body: schema.OtpBody, query: schema.RedirectQuery, flow: ({ services, request, body }) => magicLink(services, request, body) }),
  route({ method: 'POST', path: '/recover', operation: 'auth.recover', guard: 'public', limit: 'otp', captcha: true, body: schema.RecoverBody, query: schema.RedirectQuery, flow: ({ services, request, body }) => recover(services, request, body) }),
  route({ method: 'POST', path: '/verify', operation: 'auth.verify', guard: 'public', limit: 'verify', body: schema.VerifyBody, query: schema.RedirectQuery, flow: ({ services, request, body }) => verify(services, request, body) }),
  route({ method: 'GET', path: '/verify', operation: 'auth.verifyLink', guard: 'public', limit: 'verify', query: schema.VerifyQuery, flow: ({ services, request, query }) => verifyLink(services, request, query) }),
  route({ method: 'POST', path: '/token', operation: 'auth.token', guard: 'public', needsUser: linksIdentity, limit: 'tokenRefresh', captcha: (body, query) => grantTypeOf(body, query) === 'password', body: schema.TokenBody, query: schema.GrantQuery, flow: ({ services, request, body, query }) => token(services, request, body, query) }),
  route({ method: 'POST', path: '/passkeys/authentication/options', operation: 'auth.beginPasskeySignIn', guard: 'public', limit: 'passkey', storesForVisitors: true, captcha: true, body: schema.PasskeyOptionsBody, isBodyOptional: true, flow: ({ services }) => beginPasskeySignIn(services) }),
  route({ method: 'POST', path: '/passkeys/authentication/verify', operation: 'auth.verifyPasskeySignIn', guard: 'public', limit: 'passkey', body: schema.PasskeySignInBody, flow: ({ services, request, body }) => verifyPasskeySignIn(services, request, body) }),
  route({ method: 'POST', path: '/sso', operation: 'auth.sso', guard: 'public', limit: 'otp', captcha: true, body: schema.SsoBody, flow: () => sso() }),
  route({ method: 'GET', path: '/authorize', operation: 'auth.authorize', guard: 'public', limit: 'tokenRefresh', storesForVisitors: true, query: schema.AuthorizeQuery, flow: ({ services, request, query }) => authorize(services, request, query) }),
  route({ method: 'GET', path: '/callback', operation: 'auth.callback', guard: 'public', query: ProviderFields, flow: ({ services, request, query }) => callback(services, request, query) }),
  route({ method: 'POST', path: '/callback', operation: 'auth.callbackForm', guard: 'public', body: ProviderFields, isBodyOptional: true, query: ProviderFields, flow: ({ services, request, body, query }) => callback(services, request, { ...query, ...body }) }),
]

// biome-ignore format: one row, one line: this table is what a security review reads.
const USER: readonly Route[] = [
  route({ method: 'GET', path: '/user', operation: 'auth.user', guard: 'user', flow: ({ request }) => user(request) }),
  route({ method: 'PUT', path: '/user', operation: 'auth.updateUser', guard: 'user', limit: 'otp', body: schema.UserUpdateBody, query: schema.RedirectQuery, flow: ({ services, request, body }) => updateOwnUser(services, request, body) }),
  route({ method: 'GET', path: '/reauthenticate', operation: 'auth.reauthenticate', guard: 'user', writes: true, flow: ({ services, request }) => reauthenticate(services, request) }),
  route({ method: 'POST', path: '/logout', operation: 'auth.logout', guard: 'user', query: schema.LogoutQuery, flow: ({ services, request, query }) => logout(services, request, query) }),
  route({ method: 'GET', path: '/user/identities', operation: 'auth.identities', guard: 'user', flow: ({ request }) => identities(request) }),
  route({ method: 'GET', path: '/user/identities/authorize', operation: 'auth.linkIdentity', guard: 'user', writes: true, query: schema.AuthorizeQuery, flow: ({ services, request, query }) => authorizeLinking(services, request, query) }),
  route({ method: 'DELETE', path: '/user/identities/:identity_id', operation: 'auth.unlinkIdentity', guard: 'user', params: schema.IdentityParams, flow: ({ services, request, params }) => unlinkIdentity(services, request, params) }),
  route({ method: 'POST', path: '/factors', operation: 'auth.enrollFactor', guard: 'user', body: schema.FactorBody, flow: ({ services, request, body }) => enrollFactor(services, request, body) }),
  route({ method: 'POST', path: '/factors/:factor_id/challenge', operation: 'auth.challengeFactor', guard: 'user', limit: 'mfaChallengeAndVerify', body: schema.ChallengeBody, isBodyOptional: true, params: schema.FactorParams, flow: ({ services, request, body, params }) => challengeFactor(services, request, body, params) }),
  route({ method: 'POST', path: '/factors/:factor_id/verify', operation: 'auth.verifyFactor', guard: 'user', limit: 'mfaChallengeAndVerify', body: schema.FactorVerifyBody, params: schema.FactorParams, flow: ({ services, request, body, params }) => verifyFactor(services, request, body, params) }),
  route({ method: 'POST', path: '/passkeys/registration/options', operation: 'auth.beginPasskeyRegistration', guard: 'user', limit: 'passkey', body: schema.EmptyBody, isBodyOptional: true, flow: ({ services, request }) => beginPasskeyRegistration(services, request) }),
  route({ method: 'POST', path: '/passkeys/registration/verify', operation: 'auth.verifyPasskeyRegistration', guard: 'user', limit: 'passkey', body: schema.PasskeyRegistrationBody, flow: ({ services, request, body }) => verifyPasskeyRegistration(services, request, body) }),
  route({ method: 'GET', path: '/passkeys', operation: 'auth.passkeys', guard: 'user', flow: ({ services, request }) => passkeys(services, request) }),
  route({ method: 'PATCH', path: '/passkeys/:passkey_id', operation: 'auth.updatePasskey', guard: 'user', body: schema.PasskeyUpdateBody, params: schema.PasskeyParams, flow: ({ services, request, body, params }) => updatePasskey(services, request, body, params) }),
  route({ method: 'DELETE', path: '/passkeys/:passkey_id', operation: 'auth.removePasskey', guard: 'user', params: schema.PasskeyParams, flow: ({ services, request, params }) => removePasskey(services, request, params) }),
  route({ method: 'DELETE', path: '/factors/:factor_id', operation: 'auth.unenrollFactor', guard: 'user', params: schema.FactorParams, flow: ({ services, request, params }) => unenrollFactor(services, request, params) }),
]

// biome-ignore format: one row, one line: this table is what a security review reads.
const ADMIN: readonly Route[] = [
  route({ method: 'POST', path: '/invite', operation: 'auth.invite', guard: 'admin', body: schema.InviteBody, query: schema.RedirectQuery, flow: ({ services, request, body }) => invite(services, request, body) }),
  route({ method: 'POST', path: '/admin/generate_link', operation: 'auth.admin.generateLink', guard: 'admin', body: schema.GenerateLinkBody, query: schema.RedirectQuery, flow: ({ services, request, body }) => generateLink(services, request, body) }),
  route({ method: 'GET', path: '/admin/audit', operation: 'auth.admin.audit', guard: 'admin', query: schema.PageQuery, flow: ({ services, request, query }) => adminAudit(services, request, query) }),
  route({ method: 'GET', path: '/admin/users', operation: 'auth.admin.listUsers', guard: 'admin', query: schema.PageQuery, flow: ({ services, request, query }) => adminListUsers(services, request, query) }),
  route({ method: 'POST', path: '/admin/users', operation: 'auth.admin.createUser', guard: 'admin', body: schema.AdminUserBody, flow: ({ services, request, body }) => adminCreateUser(services, request, body, {}) }),
  route({ method: 'POST', path: '/admin/users/:user_id', operation: 'auth.admin.createUserWithId', guard: 'admin', body: schema.AdminUserBody, params: schema.UserParams, flow: ({ services, request, body, params }) => adminCreateUser(services, request, body, params) }),
  route({ method: 'GET', path: '/admin/users/:user_id', operation: 'auth.admin.getUser', guard: 'admin', params: schema.UserParams, flow: ({ services, request, params }) => adminGetUser(services, request, params) }),
  route({ method: 'PUT', path: '/admin/users/:user_id', operation: 'auth.admin.updateUser', guard: 'admin', body: schema.AdminUserBody, params: schema.UserParams, flow: ({ services, request, body, params }) => adminUpdateUser(services, request, body, params) }),
  route({ method: 'DELETE', path: '/admin/users/:user_id', operation: 'auth.admin.deleteUser', guard: 'admin', body: schema.AdminDeleteBody, isBodyOptional: true, params: schema.UserParams, flow: ({ services, request, body, params }) => adminDeleteUser(services, request, body, params) }),
  route({ method: 'GET', path: '/admin/users/:user_id/factors', operation: 'auth.admin.listFactors', guard: 'admin', params: schema.UserParams, flow: ({ services, request, params }) => adminListFactors(services, request, params) }),
  route({ method: 'PUT', path: '/admin/users/:user_id/factors/:factor_id', operation: 'auth.admin.updateFactor', guard: 'admin', body: schema.AdminFactorBody, params: schema.UserFactorParams, flow: ({ services, request, body, params }) => adminUpdateFactor(services, request, body, params) }),
  route({ method: 'DELETE', path: '/admin/users/:user_id/factors/:factor_id', operation: 'auth.admin.deleteFactor', guard: 'admin', params: schema.UserFactorParams, flow: ({ services, request, params }) => adminDeleteFactor(services, request, params) }),
  route({ method: 'GET', path: '/admin/users/:user_id/passkeys', operation: 'auth.admin.listPasskeys', guard: 'admin', params: schema.UserParams, flow: ({ services, request, params }) => adminListPasskeys(services, request, params) }),
  route({ method: 'DELETE', path: '/admin/users/:user_id/passkeys/:passkey_id', operation: 'auth.admin.deletePasskey', guard: 'admin', params: schema.UserPasskeyParams, flow: ({ services, request, params }) => adminDeletePasskey(services, request, params) }),
]

/** Every route of the user server: method, path, guard, limit, CAPTCHA, schemas and flow. */
export const ROUTES: readonly Route[] = [...PUBLIC, ...USER, ...ADMIN, ...SWITCHED_OFF]
