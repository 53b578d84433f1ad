import { createHmac, timingSafeEqual } from 'node:crypto'

/** Query parameters that prove that this service issued a path; they are valid until `expires`. */
export interface UrlSigner {
  /** The path with `expires` (Unix seconds) and `signature` as its query. */
  sign(path: string, expiresAtMs: number): string
  /** Whether the query is a valid signature at this time. */
  verify(
    path: string,
    query: { readonly expires?: string; readonly signature?: string },
    nowMs: number,
  ): boolean
}

/** Signs paths with HMAC-SHA256; all processes share the secret. */
export function createUrlSigner(secret: string): UrlSigner {
  const signatureOf = (path: string, expires: string) =>
    createHmac('sha256', secret).update(`${path}\n${expires}`).digest()
  return {
    sign(path, expiresAtMs) {
      const expires = String(Math.floor(expiresAtMs / 1000))
      return `${path}?expires=${expires}&signature=${signatureOf(path, expires).toString('base64url')}`
    },
    verify(path, { expires = '', signature = '' }, nowMs) {
      if (!/^\d{1,12}$/.test(expires) || Number(expires) * 1000 < nowMs) return false
      const given = Buffer.from(signature, 'base64url')
      const expected = signatureOf(path, expires)
      return given.length === expected.length && timingSafeEqual(given, expected)
    },
  }
}
