import type { FastifyCorsOptions, FastifyCorsOptionsDelegateCallback } from '@fastify/cors'

import { firstSegmentOf } from './request.ts'

/** Request headers that clients of the user server send by default. */
const USER_SERVER_HEADERS = [
  'accept',
  'authorization',
  'apikey',
  'baggage',
  'content-type',
  'traceparent',
  'tracestate',
  'x-client-info',
  'x-client-ip',
  'x-jwt-aud',
  'x-supabase-api-version',
  'x-use-cookie',
]

/**
 * The CORS rules for browsers of other origins. All request headers are allowed, unless
 * `allowedHeaders` is set: then the user server accepts only those and the usual ones. `/v1` has no
 * such list, because OpenAI clients add headers with every release.
 */
export function corsOptions(
  allowedHeaders: readonly string[],
): FastifyCorsOptions | { delegator: FastifyCorsOptionsDelegateCallback } {
  if (allowedHeaders.length === 0) return OPEN
  const limited = {
    ...OPEN,
    allowedHeaders: [...USER_SERVER_HEADERS, ...allowedHeaders].join(', '),
  }
  return {
    delegator: ({ url }, answer) => {
      answer(null, firstSegmentOf(url) === 'v1' ? OPEN : limited)
    },
  }
}

const OPEN = {
  origin: '*',
  // OPTIONS requests from programs are answered like those of browsers.
  strictPreflight: false,
  methods: ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'],
  maxAge: 86_400,
  exposedHeaders: [
    'x-request-id',
    'request-id',
    'x-millrace-ignored-parameters',
    'x-total-count',
    'etag',
    'content-range',
    'content-disposition',
    'link',
    'retry-after',
    'openai-processing-ms',
    'x-should-retry',
    'idempotent-replayed',
    'x-queue-time-ms',
    'x-inference-time-ms',
    'x-supabase-api-version',
    'x-sb-error-code',
    'x-ratelimit-limit-requests',
    'x-ratelimit-limit-tokens',
    'x-ratelimit-remaining-requests',
    'x-ratelimit-remaining-tokens',
    'x-ratelimit-reset-requests',
    'x-ratelimit-reset-tokens',
    'anthropic-ratelimit-requests-limit',
    'anthropic-ratelimit-requests-remaining',
    'anthropic-ratelimit-requests-reset',
    'anthropic-ratelimit-tokens-limit',
    'anthropic-ratelimit-tokens-remaining',
    'anthropic-ratelimit-tokens-reset',
    // Joined once instead of for every answer.
  ].join(', '),
}
