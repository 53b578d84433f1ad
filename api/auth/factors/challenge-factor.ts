import { randomUUID } from 'node:crypto'

import { record } from '#api/auth/audit/record.ts'
import { type Answer, json, type UserRequest } from '#api/auth/context.ts'
import { requireChannel } from '#api/auth/delivery/send-mail.ts'
import { renderCode } from '#api/auth/delivery/send-sms.ts'
import { tooSoon } from '#api/auth/rate-limits.ts'
import type { ChallengeBody, FactorParams, Parsed } from '#api/auth/schemas.ts'
import { codeHmac, randomDigits } from '#api/auth/secrets.ts'
import { type AuthServices, inOneTransaction } from '#api/auth/services.ts'
import { beginAssertion, beginRegistration } from '#api/auth/webauthn/ceremonies.ts'
import { listFactorCredentials } from '#api/auth/webauthn/credentials.ts'
import type { ChallengeRow, FactorRow, UserRow } from '#shared/db/schema/auth.ts'

import { claimChallenge, insertChallenge } from './factors.ts'
import { getOwnFactor, requireNamedUser, requireVerifiable } from './own-factor.ts'

/** Creates a challenge for a second factor. */
export async function challengeFactor(
  services: AuthServices,
  request: UserRequest,
  body: Parsed<typeof ChallengeBody>,
  params: Parsed<typeof FactorParams>,
): Promise<Answer> {
  const { user } = request.caller
  requireNamedUser(user)
  const factor = await getOwnFactor(services, user, params.factor_id)
  requireVerifiable(services, factor)
  const channel = requireChannel(services, body.channel)
  const isPhone = factor.factorType === 'phone'
  if (isPhone) services.sms.requireGateway(channel)
  const ceremony = await beginCeremony(services, user, factor)
  const challenge = await inOneTransaction(services, (tx) =>
    createChallenge(tx, request, { factor, channel, webauthnChallenge: ceremony?.challenge }),
  )
  const expiresAt = Math.floor(challenge.expiresAt.getTime() / 1000)
  return json({
    id: challenge.id,
    type: factor.factorType,
    expires_at: expiresAt,
    ...(ceremony && {
      webauthn: { type: ceremony.type, credential_options: { publicKey: ceremony.options } },
    }),
  })
}

/** The request options for the authenticator; undefined for factors with codes. */
async function beginCeremony(services: AuthServices, user: UserRow, factor: FactorRow) {
  if (factor.factorType !== 'webauthn') return undefined
  const ttlSeconds = services.config.mfa.challengeTtlSeconds
  const credentials = await listFactorCredentials(services.store, user.id)
  if (factor.status === 'unverified') {
    const registration = { user, existing: credentials, isDiscoverable: false, ttlSeconds }
    return { type: 'create', ...(await beginRegistration(services, registration)) } as const
  }
  const allowed = credentials.filter(({ factorId }) => factorId === factor.id)
  return { type: 'request', ...(await beginAssertion(services, { allowed, ttlSeconds })) } as const
}

async function createChallenge(
  services: AuthServices,
  request: UserRequest,
  asked: {
    readonly factor: FactorRow
    readonly channel: 'sms' | 'whatsapp'
    readonly webauthnChallenge: string | undefined
  },
): Promise<ChallengeRow> {
  const { channel } = asked
  const { mfa, jwt } = services.config
  const isPhone = asked.factor.factorType === 'phone'
  const gapSeconds = isPhone ? mfa.phone.gapSeconds : 0
  // An administrator may have changed the number in between.
  const factor = await claimChallenge(services.store, asked.factor.id, gapSeconds)
  if (factor === undefined) throw tooSoon('sms', gapSeconds)
  const id = randomUUID()
  const code = isPhone ? randomDigits(Math.max(6, Math.min(10, mfa.phone.otpLength))) : undefined
  const hmac = code === undefined ? null : codeHmac(jwt.secret, ['challenge', id], code)
  const challenge = await insertChallenge(
    services.store,
    {
      id,
      factorId: factor.id,
      codeHmac: hmac,
      ip: request.ip,
      webauthnChallenge: asked.webauthnChallenge ?? null,
    },
    mfa.challengeTtlSeconds,
  )
  if (code !== undefined) {
    // Counted per user: otherwise a factor that is removed and enrolled again would have no gap.
    await services.limits.takeContact('challenge', factor.userId, gapSeconds, 'sms')
    await services.limits.takeSend('sms', request)
    const message = renderCode(mfa.phone.template, code)
    await services.outbox.write(services.store, {
      userId: factor.userId,
      purpose: `challenge ${factor.id}`,
      message: {
        channel: 'sms',
        sms: { to: factor.phone as string, message, channel, otp: code, type: 'mfa' },
      },
      expiresAt: challenge.expiresAt,
    })
  }
  await record(services, services.store, {
    request,
    actor: { kind: 'user', user: request.caller.user },
    action: 'challenge_created',
    traits: { factor_id: factor.id, factor_status: factor.status },
  })
  return challenge
}
