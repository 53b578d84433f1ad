import { join } from 'node:path'

import { defined } from '#shared/json.ts'
import type { SequenceRequest, TextEngine, TokenSampler } from '#workers/engine/types.ts'

/** Folder of the tiny models. */
export const MODELS = join(import.meta.dirname, '../../../fixtures/models')

/** Takes the likeliest token. */
export const greedy: TokenSampler = {
  next(logits) {
    let best = 0
    for (let id = 1; id < logits.length; id += 1)
      if (defined(logits[id]) > defined(logits[best])) best = id
    return { tokenId: best }
  },
}

export type RequestChanges = Partial<SequenceRequest> & { readonly signal?: AbortSignal }

/** A greedy request with the given changes. */
export function makeRequest(changes: RequestChanges = {}): SequenceRequest {
  return {
    promptTokenIds: [5, 6, 7],
    generatedTokenIds: [],
    maxNewTokens: 16,
    sampler: greedy,
    endTokenIds: new Set(),
    cacheScope: 'test',
    onToken: () => true,
    ...changes,
  }
}

/** Runs a greedy request and returns the new token ids and how it ended. */
export async function generate(
  engine: Pick<TextEngine, 'run'>,
  changes: RequestChanges = {},
): Promise<{ tokenIds: number[]; reason: string; cachedTokens: number }> {
  const tokenIds: number[] = []
  const request = makeRequest(changes)
  const end = await engine.run(
    {
      ...request,
      onToken(token) {
        tokenIds.push(token.tokenId)
        return request.onToken(token)
      },
    },
    { signal: changes.signal ?? new AbortController().signal },
  )
  return { tokenIds, ...end }
}
