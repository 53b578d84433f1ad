import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'

import { defined } from '#shared/json.ts'

import { post } from './fault-client.ts'
import { sleep } from './fault-world.ts'
import { API_KEY } from './tiers.ts'
import { toyText } from './toy-worker.ts'

/** A receiver of webhooks with a well-behaved path and several broken ones. */
export interface WebhookReceiver {
  readonly base: string
  /** Ids of the jobs that `/good` was sent, each with the ids of its deliveries. */
  readonly received: ReadonlyMap<string, ReadonlySet<string>>
  close(): Promise<void>
}

/** The paths of receivers that never take a delivery. */
export const BROKEN_PATHS = ['/hangs', '/fails', '/redirects', '/trickles'] as const

const TRICKLE_MS = 200

/** Starts a receiver of webhooks. */
export async function startReceiver(): Promise<WebhookReceiver> {
  const received = new Map<string, Set<string>>()
  const server: Server = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk)
    switch (request.url) {
      case '/good': {
        const { id, data } = JSON.parse(Buffer.concat(chunks).toString())
        received.set(data.id, (received.get(data.id) ?? new Set()).add(id))
        return response.writeHead(204).end()
      }
      case '/fails':
        return response.writeHead(500).end()
      case '/redirects':
        return response.writeHead(302, { location: '/good' }).end()
      case '/trickles': {
        response.writeHead(200)
        const timer = setInterval(() => response.write('.'), TRICKLE_MS)
        return response.once('close', () => clearInterval(timer))
      }
      default:
        return undefined
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    base: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    received,
    async close() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

/** Makes an endpoint for the ends of jobs. */
export async function createEndpoint(url: string, receiver: string): Promise<void> {
  const events = ['job.completed', 'job.failed', 'job.expired']
  const answer = await post(url, '/v1/webhook_endpoints', { url: receiver, events })
  if (!answer.ok) throw new Error(`no endpoint was made: ${await answer.text()}`)
}

/** Starts a streamed completion of the toy model in the background; returns the id of its job. */
export async function startJob(url: string, tokens: number, stepMs: number): Promise<string> {
  const body = { model: 'toy', prompt: `stepMs=${stepMs}`, max_tokens: tokens, stream: true }
  const headers = { prefer: 'respond-async' }
  const answer = await post(url, '/v1/completions', body, { headers })
  const job = (await answer.json()) as { readonly id: string }
  if (answer.status !== 202) throw new Error(`the job was refused: ${answer.status}`)
  return job.id
}

/**
 * Follows the events of a job to its end, from any of the API processes, each time behind the last
 * event that it has.
 */
export async function followJob(id: string, pickUrl: () => string): Promise<readonly string[]> {
  const events: string[] = []
  for (;;) {
    try {
      const after = events.length === 0 ? '' : `?starting_after=${events.length - 1}`
      const answer = await fetch(`${pickUrl()}/v1/jobs/${id}/events${after}`, {
        headers: { authorization: `Bearer ${API_KEY}` },
      })
      if (!answer.ok) throw new Error(`no events: ${answer.status}`)
      let rest = ''
      for await (const text of defined(answer.body).pipeThrough(new TextDecoderStream())) {
        const parts = (rest + text).split('\n\n')
        rest = parts.pop() ?? ''
        events.push(...parts.filter((part) => !part.startsWith(':')))
      }
      if (events.at(-1) === 'data: [DONE]') return events
    } catch {
      // Its process is gone: another one has the rest.
    }
    await sleep(100)
  }
}

/** Whether the events spell exactly the toy's text. */
export function areWhole(events: readonly string[], tokens: number): boolean {
  const texts = events.map((event) => {
    if (event === 'data: [DONE]') return ''
    const { choices } = JSON.parse(event.slice('data: '.length))
    return String(choices[0]?.text ?? '')
  })
  return texts.join('') === toyText(tokens)
}
