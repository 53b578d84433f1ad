import { createHmac } from 'node:crypto'

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

function percent(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  )
}
