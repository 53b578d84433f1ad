import type { SequenceRequest, TextEngine } from '#workers/engine/types.ts'

/** The likeliest token at or above `from`; those below are the ones that end a text. */
export function likeliest(logits: Float32Array, from = 0): number {
  let best = from
  for (let i = from; i < logits.length; i += 1) {
    if ((logits[i] as number) > (logits[best] as number)) best = i
  }
  return best
}

/** One greedy sequence alone in an engine; returns its tokens, and calls back with each. */
export async function runGreedy(
  engine: TextEngine,
  request: Pick<SequenceRequest, 'promptTokenIds' | 'maxNewTokens' | 'cacheScope'> &
    Partial<Pick<SequenceRequest, 'propose' | 'endTokenIds' | 'adapter' | 'embedded'>> & {
      readonly onToken?: () => void
    },
  from = 0,
): Promise<number[]> {
  const tokenIds: number[] = []
  await engine.run(
    {
      generatedTokenIds: [],
      endTokenIds: new Set(),
      sampler: { next: (logits) => ({ tokenId: likeliest(logits, from) }) },
      ...request,
      onToken: ({ tokenId }) => {
        request.onToken?.()
        return tokenIds.push(tokenId) > 0
      },
    },
    { signal: new AbortController().signal },
  )
  return tokenIds
}
