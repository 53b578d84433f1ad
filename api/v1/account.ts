import type { FastifyRequest } from 'fastify'

import { callerOf } from './caller.ts'

/** The account that the jobs of a request are charged to. */
export interface JobAccount {
  readonly requestId: string
  readonly apiKeyId: string | undefined
  readonly userId: string | undefined
  /** Names the use where several jobs may run for one answer; the job does otherwise. */
  readonly usageId?: string
  /** Called once per job with the tokens that it used. */
  noteTokens(tokens: number): void
}

/** The account of a request behind the credential check. */
export function accountOf(request: FastifyRequest): JobAccount {
  const { apiKeyId, userId } = callerOf(request)
  return {
    requestId: request.id,
    apiKeyId,
    userId,
    noteTokens: (tokens) => request.context.onTokens?.(tokens),
  }
}
