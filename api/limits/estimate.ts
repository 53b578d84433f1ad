import type { FastifyRequest } from 'fastify'

import { JOB_SCOPES, type RequiredScope } from '#api/v1/scopes.ts'

const MAKES_WORKERS_RUN: ReadonlySet<RequiredScope> = new Set(JOB_SCOPES)

// A token of English text is about four characters.
const BYTES_PER_TOKEN = 4
const TOKENS_MAX = 10_000_000
const COPIES_MAX = 128
// The default of `max_tokens` for a completion; that of a chat is known only at its end.
const COMPLETION_TOKENS_DEFAULT = 16

/** Whether a request makes the workers run. */
export function runsJob({ method, routeOptions }: FastifyRequest): boolean {
  if (method !== 'POST') return false
  // Batches are charged by line; without a remaining monthly quota no new batch is accepted.
  if (routeOptions.config.scope === 'batches')
    return routeOptions.url?.endsWith('/batches') === true
  return MAKES_WORKERS_RUN.has(routeOptions.config.scope as RequiredScope)
}

/** The charge of a request until its real usage is known: its length and its largest output. */
export function estimateTokens(request: FastifyRequest): number {
  const { body, headers, routeOptions } = request
  // The bytes of a form are an image or a recording.
  if (typeof body !== 'object' || body === null) return 0
  const fields = body as Readonly<Record<string, unknown>>
  const asked = [fields.max_completion_tokens, fields.max_output_tokens, fields.max_tokens].find(
    (value) => typeof value === 'number' && value >= 0,
  )
  const isCompletion = routeOptions.config.scope === 'completions'
  const perCopy = typeof asked === 'number' ? asked : isCompletion ? COMPLETION_TOKENS_DEFAULT : 0
  const copies = Math.max(1, count(fields.n), count(fields.best_of))
  // A body that came in pieces announces no length.
  const bytes = headers['content-length'] ?? Buffer.byteLength(JSON.stringify(body))
  const prompt = Math.ceil(Number(bytes) / BYTES_PER_TOKEN)
  return Math.min(TOKENS_MAX, Math.ceil(prompt + perCopy * Math.min(COPIES_MAX, copies)))
}

function count(value: unknown): number {
  return typeof value === 'number' && value > 0 ? value : 0
}
