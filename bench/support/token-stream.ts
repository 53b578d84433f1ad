import { type Agent, request } from 'node:http'

import type { BenchService } from './service.ts'

/** When the parts of a streamed completion came, in milliseconds after it was asked for. */
export interface StreamTimes {
  readonly status: number
  /** Empty when it was refused. */
  readonly partsMs: readonly number[]
  readonly endMs: number
  /** The whole answer as it came. */
  readonly raw: string
}

/** Streams one completion with a client that does nothing but read and look at the clock. */
export function timeStream(
  { url, headers }: Pick<BenchService, 'url' | 'headers'>,
  body: object,
  {
    path = '/completions',
    ...options
  }: { readonly path?: string; readonly agent?: Agent; readonly signal?: AbortSignal } = {},
): Promise<StreamTimes> {
  return new Promise((resolve, reject) => {
    const startedAt = performance.now()
    const call = request(
      `${url}${path}`,
      { ...options, method: 'POST', headers: { ...headers, 'content-type': 'application/json' } },
      (response) => {
        const partsMs: number[] = []
        const chunks: Buffer[] = []
        response.on('data', (chunk: Buffer) => {
          partsMs.push(performance.now() - startedAt)
          chunks.push(chunk)
        })
        response.on('error', reject)
        response.on('end', () => {
          const status = response.statusCode ?? 0
          const raw = Buffer.concat(chunks).toString()
          const endMs = performance.now() - startedAt
          resolve({ status, partsMs: status === 200 ? partsMs : [], endMs, raw })
        })
      },
    )
    call.on('error', reject)
    call.end(JSON.stringify({ stream: true, temperature: 0, ...body }))
  })
}

/** The text of a streamed completion, put together. Throws when it broke off. */
export function textOf({ raw }: StreamTimes): string {
  if (!raw.endsWith('data: [DONE]\n\n')) throw new Error(`a stream broke: ${raw.slice(-300)}`)
  return raw
    .split('\n\n')
    .filter((event) => event.startsWith('data: {'))
    .map((event) => {
      const { choices } = JSON.parse(event.slice('data: '.length)) as {
        choices: readonly { readonly text: string }[]
      }
      return choices[0]?.text ?? ''
    })
    .join('')
}
