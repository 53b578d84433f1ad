import fc, { type Arbitrary } from 'fast-check'

import { hostileText } from './values.ts'

const FIXED = ['application/json', '*/*', '', ',', 'text/event-stream', 'a/b;q=9', '\u00ff', '%00']
const of = (name: string, ...values: readonly string[]) =>
  fc.constantFrom(...values, ...FIXED).map((value) => [name, value] as const)

/** A header that clients send, with a value that they do not. */
export const ODD_HEADERS: Arbitrary<readonly [string, string]> = fc.oneof(
  of('accept', 'text/html', 'application/xml', 'image/*'),
  of('x-request-id', 'a'.repeat(5000), '\u0001', "'"),
  of('idempotency-key', 'same', 'a'.repeat(300), 'a'.repeat(256), '\u00e9'),
  of('x-supabase-api-version', '2024-01-01', '2099-01-01', '0', '2024-13-45'),
  of('origin', 'null', 'https://evil.example', 'http://localhost'),
  of('x-forwarded-for', '127.0.0.1', '::ffff:1.2.3.4, x', "1.2.3.4' or 1=1--"),
  of('x-forwarded-host', 'evil.example'),
  of('x-forwarded-proto', 'javascript'),
  of('x-stainless-timeout', '1', '-1', '0', '1e9', 'NaN', '0.5'),
  of('x-stainless-retry-count', '-1', '9999999999999'),
  of('range', 'bytes=0-', 'bytes=-1', 'bytes=9-1', 'bytes=0-0,1-1', `bytes=${'9'.repeat(400)}-`),
  of('if-none-match', '*', 'W/"x"', '"'),
  of('traceparent', '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', '00-0-0-0'),
  of('redirect_to', 'https://evil.example', '//evil.example', 'javascript:1'),
  of('cookie', 'a', '=;=;', '__proto__=1', 'a=%zz', '$Version=1; a="b'),
  of('authorization', 'Bearer', 'Basic Og==', 'Bearer a b', `Bearer ${'a'.repeat(5000)}`),
  of('apikey', 'x'),
  of('openai-organization', 'org-x'),
  of('x-jwt-aud', 'other', '__proto__'),
  of('content-encoding', 'gzip', 'identity', 'br, gzip'),
  of('accept-language', '*;q=0', 'x'.repeat(3000)),
  of('expect', '100-continue', 'x'),
  of('content-length', '0', '5', '-1', '1e3', '99999999999999999999'),
  of('transfer-encoding', 'chunked', 'identity', 'gzip, chunked'),
  of('host', 'evil.example', '[::1', 'a:99999'),
  of('connection', 'upgrade', 'close, x'),
  of('upgrade', 'websocket', 'h2c'),
  of('x-http-method-override', 'DELETE'),
  fc.tuple(fc.constantFrom('x-a', 'X-B', '__proto__', 'user-agent'), hostileText.map(headerText)),
)

// A line break would end the header: what follows it could be a request of its own.
function headerText(text: string): string {
  return Buffer.from(text.toWellFormed(), 'utf8')
    .toString('latin1')
    .replace(/[\r\n]/g, ' ')
}
