import type { FastifyInstance } from 'fastify'

import { API_KEY } from './surface.ts'

/** One part of a form: a text, or a file with its name. */
export type Part = readonly [
  name: string,
  value: string | { readonly filename?: string; readonly bytes: Buffer },
]

const BOUNDARY = 'boundary-of-the-tests'

/** The body of a form, byte by byte as clients write it. */
export function formBody(parts: readonly Part[]): Buffer {
  const chunks = parts.flatMap(([name, value]) => {
    const isText = typeof value === 'string'
    const filename = isText || value.filename === undefined ? '' : `; filename="${value.filename}"`
    const type = isText ? '' : 'Content-Type: application/octet-stream\r\n'
    const head = `--${BOUNDARY}\r\nContent-Disposition: form-data; name="${name}"${filename}\r\n${type}\r\n`
    return [Buffer.from(head), isText ? Buffer.from(value) : value.bytes, Buffer.from('\r\n')]
  })
  return Buffer.concat([...chunks, Buffer.from(`--${BOUNDARY}--\r\n`)])
}

/** Posts a form. */
export function postForm(app: FastifyInstance, url: string, body: readonly Part[] | Buffer) {
  return app.inject({
    method: 'POST',
    url,
    headers: {
      authorization: `Bearer ${API_KEY}`,
      'content-type': `multipart/form-data; boundary=${BOUNDARY}`,
    },
    payload: Buffer.isBuffer(body) ? body : formBody(body as readonly Part[]),
  })
}
