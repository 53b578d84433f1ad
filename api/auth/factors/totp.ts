import { Secret, TOTP } from 'otpauth'

import { invalid } from '#api/auth/errors.ts'

const PERIOD_SECONDS = 30
const DIGITS = 6
const CODE = /^[0-9]{6}$/
// The capacity of a QR code with the default error correction.
const URI_CHARACTERS_MAX = 2331
// Codes of the neighbouring periods count too, because clocks differ.
const WINDOW = 1

/** The enrolment data of an authenticator. */
export interface TotpEnrolment {
  readonly secret: string
  readonly uri: string
  /** The URI as an SVG image. */
  readonly qrCodeSvg: string
}

/**
 * Creates a secret for an authenticator: SHA-1, six digits, 30 seconds, which all of them support.
 */
export async function createTotp(issuer: string, account: string): Promise<TotpEnrolment> {
  const secret = new Secret({ size: 20 })
  const totp = totpOf(secret, { issuer, label: account })
  const uri = totp.toString()
  if (uri.length > URI_CHARACTERS_MAX) throw invalid('issuer is too long for a QR code', 'issuer')
  // Loaded on first use, because most processes never draw a code.
  const { default: QRCode } = await import('qrcode')
  const qrCodeSvg = await QRCode.toString(uri, { type: 'svg', margin: 1 })
  return { secret: secret.base32, uri, qrCodeSvg: qrCodeSvg.trim() }
}

/** The time step that a code belongs to; undefined when it is wrong or too old. */
export function findTotpStep(secret: string, code: string, nowMs: number): number | undefined {
  if (!CODE.test(code)) return undefined
  const totp = totpOf(Secret.fromBase32(secret), {})
  const delta = totp.validate({ token: code, timestamp: nowMs, window: WINDOW })
  return delta === null ? undefined : Math.floor(nowMs / 1000 / PERIOD_SECONDS) + delta
}

function totpOf(secret: Secret, names: { issuer?: string; label?: string }): TOTP {
  return new TOTP({
    ...names,
    secret,
    algorithm: 'SHA1',
    digits: DIGITS,
    period: PERIOD_SECONDS,
  })
}
