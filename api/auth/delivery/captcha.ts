import { authFailure } from '#api/auth/errors.ts'
import type { CaptchaVerifier } from '#api/auth/ports.ts'
import type { CaptchaConfig } from '#shared/config/auth-sms.ts'
import { createGuardedFetch, type GuardedFetch, OutgoingError } from '#shared/net/guarded-fetch.ts'

const VERIFY_URLS = {
  hcaptcha: 'https://hcaptcha.com/siteverify',
  turnstile: 'https://challenges.cloudflare.com/turnstile/v0/siteverify',
} as const satisfies Record<CaptchaConfig['provider'], string>

type Settings = Pick<CaptchaConfig, 'provider' | 'secret' | 'timeoutSeconds' | 'url'>

/**
 * Asks the CAPTCHA provider. Refuses clients that it does not confirm, even if it does not answer.
 */
export function createCaptchaVerifier(
  config: Settings,
  fetch: GuardedFetch = createGuardedFetch({
    timeoutMs: config.timeoutSeconds * 1000,
    bodyBytesMax: 65_536,
    // The operator sets this URL.
    allowsPrivateAddresses: true,
  }),
): CaptchaVerifier {
  const url = config.url || VERIFY_URLS[config.provider]
  return {
    async verify(token, remoteIp) {
      if (token.trim() === '') throw disallowed(['no captcha_token found'])
      const form = { secret: config.secret, response: token.trim(), remoteip: remoteIp }
      const reply = await ask(fetch, url, form)
      if (reply.success !== true) throw disallowed(errorCodesOf(reply))
    },
  }
}

async function ask(
  fetch: GuardedFetch,
  url: string,
  form: Record<string, string>,
): Promise<Record<string, unknown>> {
  try {
    const { status, text } = await fetch({ url, method: 'POST', form })
    const body: unknown = JSON.parse(text)
    if (status < 500 && typeof body === 'object' && body !== null) return { ...body }
  } catch (error) {
    if (!(error instanceof OutgoingError) && !(error instanceof SyntaxError)) throw error
    throw processFailed(error)
  }
  throw processFailed()
}

function processFailed(cause?: unknown) {
  const message = 'captcha verification process failed'
  return authFailure('captcha_failed', { message, kind: 'internal', cause })
}

function disallowed(codes: readonly string[]) {
  const message = `captcha protection: request disallowed (${codes.join(', ')})`
  return authFailure('captcha_failed', { message })
}

function errorCodesOf(reply: Record<string, unknown>): string[] {
  const codes = reply['error-codes']
  if (!Array.isArray(codes)) return []
  return codes.filter((code) => typeof code === 'string' && code.length <= 100).slice(0, 10)
}
