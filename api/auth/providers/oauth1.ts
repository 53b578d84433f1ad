import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from 'node:crypto'

/** The `Authorization` header of a request signed as in RFC 5849 with HMAC-SHA1. */
export function signOauth1(request: {
  readonly method: 'GET' | 'POST'
  readonly url: string
  readonly consumerKey: string
  readonly consumerSecret: string
  readonly token?: string
  readonly tokenSecret?: string
  readonly extra?: Readonly<Record<string, string>>
  readonly nonce: string
  readonly timestampSeconds: number
}): string {
  const url = new URL(request.url)
  const oauth: Record<string, string> = {
    oauth_consumer_key: request.consumerKey,
    oauth_nonce: request.nonce,
    oauth_signature_method: 'HMAC-SHA1',
    oauth_timestamp: String(request.timestampSeconds),
    oauth_version: '1.0',
    ...(request.token !== undefined && { oauth_token: request.token }),
    ...request.extra,
  }
  const parameters = [...Object.entries(oauth), ...url.searchParams]
    .map(([name, value]) => `${percent(name)}=${percent(value)}`)
    .toSorted()
    .join('&')
  const base = [request.method, `${url.origin}${url.pathname}`, parameters].map(percent).join('&')
  const key = `${percent(request.consumerSecret)}&${percent(request.tokenSecret ?? '')}`
  const signature = createHmac('sha1', key).update(base).digest('base64')
  const fields = Object.entries({ ...oauth, oauth_signature: signature })
  return `OAuth ${fields.map(([name, value]) => `${percent(name)}="${percent(value)}"`).join(', ')}`
}

/** Seals a text that travels through the browser; bound to a context such as the state. */
export function seal(text: string, key: { readonly secret: string; readonly context: string }) {
  const iv = randomBytes(12)
  const cipher = createCipheriv('aes-256-gcm', sealKey(key.secret), iv).setAAD(
    Buffer.from(key.context),
  )
  const sealed = Buffer.concat([iv, cipher.update(text, 'utf8'), cipher.final()])
  return Buffer.concat([sealed, cipher.getAuthTag()]).toString('base64url')
}

/** The inverse of `seal`; throws for anything that was not sealed here for this context. */
export function unseal(text: string, key: { readonly secret: string; readonly context: string }) {
  const bytes = Buffer.from(text, 'base64url')
  if (bytes.length < 28) throw new Error('too short to be sealed')
  const decipher = createDecipheriv('aes-256-gcm', sealKey(key.secret), bytes.subarray(0, 12))
  decipher.setAAD(Buffer.from(key.context)).setAuthTag(bytes.subarray(-16))
  return Buffer.concat([decipher.update(bytes.subarray(12, -16)), decipher.final()]).toString()
}

function sealKey(secret: string): Buffer {
  return Buffer.from(hkdfSync('sha256', secret, '', 'oauth1 request token', 32))
}

function percent(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  )
}
