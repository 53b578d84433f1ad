import type { Claim } from './requests.ts'

/** JSON with half of a surrogate pair. */
const UNPAIRED = '{"a":"\\ud800"}'

/** Requests that were once answered wrongly, with the status that they deserve. */
export const FOUND: readonly {
  readonly what: string
  readonly operation: string
  readonly method?: string
  readonly target: string
  readonly claim?: Claim
  readonly headers?: readonly (readonly [string, string])[]
  readonly body?: string
  readonly status: number
}[] = [
  {
    what: 'a path that cannot be decoded',
    operation: 'DELETE /v1/files/{file_id}',
    target: '/v1/files/%',
    status: 400,
  },
  ...['Infinity', '1e999', '-1e999', 'NaN', '1e308', '9007199254740993', '0x10', '%205%20', ''].map(
    (limit) => ({
      what: `a limit that is not a number in bounds, "${limit}"`,
      operation: 'GET /v1/batches',
      target: `/v1/batches?limit=${limit}`,
      status: 400,
    }),
  ),
  ...[
    { operation: 'GET /v1/jobs', target: `/v1/jobs?metadata=${encodeURIComponent(UNPAIRED)}` },
    { operation: 'GET /v1/jobs', target: '/v1/jobs?metadata=["a"]' },
    { operation: 'GET /v1/chat/completions', target: '/v1/chat/completions?metadata[a%00]=b' },
    {
      operation: 'POST /v1/responses',
      target: '/v1/responses',
      body: `{"model":"chat","input":"Hi","background":true,"metadata":${UNPAIRED}}`,
    },
  ].map((request) => ({
    what: `metadata that Postgres cannot store, ${request.target}`,
    ...request,
    ...('body' in request && { headers: [['content-type', 'application/json']] as const }),
    status: 400,
  })),
  {
    what: 'an activity that Postgres cannot store',
    operation: 'POST /v1/activities',
    target: '/v1/activities',
    headers: [['content-type', 'application/json']],
    body: `{"type":"Note","orderedItems":${UNPAIRED}}`,
    status: 400,
  },
  {
    what: 'an id that is too long',
    operation: 'GET /v1/files/{file_id}',
    target: `/v1/files/${'a'.repeat(600)}`,
    status: 400,
  },
  {
    what: 'a question what is allowed, from outside a browser',
    operation: 'GET /v1/batches',
    method: 'OPTIONS',
    target: '/v1/batches',
    status: 204,
  },
  {
    what: 'that question with a body of a kind that nobody reads',
    operation: 'POST /v1/audio/transcriptions',
    method: 'OPTIONS',
    target: '/v1/audio/transcriptions',
    headers: [['content-type', 'multipart/form-data; boundary=b']],
    body: '--b--\r\n',
    status: 204,
  },
  {
    what: 'a part without a name behind a file',
    operation: 'POST /v1/images/edits',
    target: '/v1/images/edits',
    headers: [['content-type', 'multipart/form-data; boundary=b']],
    body: [
      ...['--b', 'content-disposition: form-data; name="image"; filename="a.png"', '', 'x'],
      ...['--b', 'content-disposition: form-data', '', 'no name', '--b--', ''],
    ].join('\r\n'),
    status: 400,
  },
  {
    what: 'a compressed body for the board of queues',
    operation: 'GET /admin/queues',
    target: '/admin/queues',
    headers: [['content-encoding', 'gzip']],
    status: 415,
  },
  {
    what: 'a host that is none',
    operation: 'GET /v1/models',
    target: '/v1/models',
    headers: [['host', '\u00ff']],
    status: 400,
  },
]
