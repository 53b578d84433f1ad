import type { EndpointRow } from '#shared/db/schema/webhooks.ts'
import { createWebhookSecret, webhookKeyOf } from '#shared/net/standard-webhooks.ts'
import type { ContentCipher } from '#shared/queue/content-cipher.ts'
import { packContent, unpackContent } from '#shared/stored-content.ts'

/** How long the previous secret stays valid after a rotation. */
const OVERLAP_MS = 86_400_000

interface StoredSecret {
  readonly secret: string
  /** When a replaced secret expires. */
  readonly untilMs?: number
}

/** The signing secrets of endpoints, in the form of Standard Webhooks: `whsec_` and Base64. */
export class Secrets {
  readonly #cipher: ContentCipher | undefined

  constructor(cipher: ContentCipher | undefined) {
    this.#cipher = cipher
  }

  /** A new secret, and the secrets to store; earlier ones stay valid for a day. */
  async renew(
    endpoint: Pick<EndpointRow, 'id'> & { readonly secrets?: Buffer },
    nowMs: number,
  ): Promise<{ readonly secret: string; readonly secrets: Buffer }> {
    const secret = createWebhookSecret()
    const earlier = await this.#read(endpoint)
    const replaced = earlier
      .filter(({ untilMs }) => untilMs === undefined)
      .map((one) => ({ ...one, untilMs: nowMs + OVERLAP_MS }))
    const stored = JSON.stringify([{ secret }, ...replaced])
    return { secret, secrets: await packContent(stored, this.#cipher, contextOf(endpoint.id)) }
  }

  /** The secrets that currently sign, the newest first. */
  async liveOf(endpoint: EndpointRow, nowMs: number): Promise<readonly Buffer[]> {
    const stored = await this.#read(endpoint)
    return stored
      .filter(({ untilMs }) => untilMs === undefined || untilMs > nowMs)
      .map(({ secret }) => webhookKeyOf(secret))
  }

  async #read({
    id,
    secrets,
  }: Pick<EndpointRow, 'id'> & { readonly secrets?: Buffer }): Promise<readonly StoredSecret[]> {
    if (secrets === undefined) return []
    return JSON.parse((await unpackContent(secrets, this.#cipher, contextOf(id))).toString('utf8'))
  }
}

function contextOf(endpointId: string): string {
  return `webhook secrets ${endpointId}`
}
