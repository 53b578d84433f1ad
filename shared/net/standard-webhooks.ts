import { createHmac, randomBytes } from 'node:crypto'

const SECRET_BYTES = 32
const SECRET_PREFIX = 'whsec_'

/** A new signing secret in the form of Standard Webhooks: `whsec_` and Base64. */
export function createWebhookSecret(): string {
  return SECRET_PREFIX + randomBytes(SECRET_BYTES).toString('base64')
}

/** The bytes of a signing secret. */
export function webhookKeyOf(secret: string): Buffer {
  return Buffer.from(secret.slice(SECRET_PREFIX.length), 'base64')
}

/** The headers of Standard Webhooks 1.0.0, with a signature for every secret. */
export function signWebhook(
  secrets: readonly Buffer[],
  message: { readonly id: string; readonly nowMs: number; readonly text: string },
): Record<string, string> {
  const { id, nowMs, text } = message
  const timestamp = String(Math.floor(nowMs / 1000))
  const signatures = secrets.map((secret) => {
    const mac = createHmac('sha256', secret).update(`${id}.${timestamp}.${text}`)
    return `v1,${mac.digest('base64')}`
  })
  return {
    'webhook-id': id,
    'webhook-timestamp': timestamp,
    ...(signatures.length > 0 && { 'webhook-signature': signatures.join(' ') }),
  }
}
