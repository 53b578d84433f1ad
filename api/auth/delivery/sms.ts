import type { Sms, SmsSender } from '#api/auth/ports.ts'
import type { Clock } from '#shared/clock.ts'
import type { SmsConfig } from '#shared/config/auth-sms.ts'
import { failure, ServiceError } from '#shared/errors.ts'
import type { GuardedFetch } from '#shared/net/guarded-fetch.ts'

import { SMS_GATEWAYS } from './sms-gateways.ts'

const DETAIL_CHARS_MAX = 300

/** Sends text messages through the gateway of the settings. */
export function createSmsSender(options: {
  readonly config: SmsConfig
  readonly fetch: GuardedFetch
  readonly clock: Clock
}): SmsSender {
  const { config, fetch, clock } = options
  const gatewayFor = (channel: Sms['channel']) => {
    if (config.gateway === 'none') throw noGateway()
    const gateway = SMS_GATEWAYS[config.gateway]
    if (gateway.missing(config).length > 0) throw noGateway()
    if (channel === 'whatsapp' && !hasWhatsapp(config.gateway)) {
      throw sendFailed(`channel type "whatsapp" is not supported by ${config.gateway}`)
    }
    return gateway
  }
  const { check } = config.gateway === 'none' ? {} : SMS_GATEWAYS[config.gateway]
  return {
    ...(check !== undefined && {
      isRightCode: async (to: string, code: string) => {
        gatewayFor('sms')
        const request = { method: 'POST', ...check.request(config, { to, code }) } as const
        const reply = await fetch(request).catch((error: unknown) => {
          throw sendFailed('the gateway cannot be reached', error)
        })
        return check.isRight(parseJson(reply.text))
      },
    }),
    requireGateway: (channel) => void gatewayFor(channel),
    async send(sms) {
      const gateway = gatewayFor(sms.channel)
      try {
        const reply = await fetch({ method: 'POST', ...gateway.request(config, sms) })
        const result = gateway.read(parseJson(reply.text), reply.status)
        if ('messageId' in result) return result
        throw sendFailed(result.problem || `the gateway answered ${reply.status}`)
      } catch (error) {
        if (error instanceof ServiceError) throw error
        throw sendFailed('the gateway cannot be reached', error)
      }
    },
    testOtp(phone) {
      const until = config.testOtpsValidUntilMs
      if (until !== undefined && clock.now() >= until) return undefined
      const number = phone.replace(/^\+/, '')
      return Object.hasOwn(config.testOtps, number) ? config.testOtps[number] : undefined
    },
  }
}

/** Whether a gateway can also deliver by WhatsApp. */
export function hasWhatsapp(gateway: SmsConfig['gateway']): boolean {
  return gateway === 'twilio' || gateway === 'twilio_verify'
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // An HTML page instead of JSON has no useful text; the status is enough.
    return undefined
  }
}

function noGateway(): ServiceError {
  return failure.internal('Unable to get SMS provider', { code: 'unexpected_failure' })
}

function sendFailed(detail: string, cause?: unknown): ServiceError {
  const message = `Error sending confirmation OTP to provider: ${detail.slice(0, DETAIL_CHARS_MAX)}`
  return failure.unprocessable(message, { code: 'sms_send_failed', cause })
}
