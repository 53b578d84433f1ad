import { CancelledError } from '#shared/errors.ts'
import type { SequenceEnd, SequenceRequest, TextEngine } from '#workers/engine/types.ts'

/** Gives the logits that follow a text; a test's stand-in for a model. */
export type LogitsOf = (tokenIds: readonly number[]) => Float32Array

export const VOCABULARY = 320

/** An engine without a model: one token per turn of the event loop, by a given function. */
export function scriptedEngine(
  logitsOf: LogitsOf,
  contextLength = 256,
): TextEngine & { requests: SequenceRequest[] } {
  const requests: SequenceRequest[] = []
  return {
    requests,
    contextLength,
    vocabSize: VOCABULARY,
    cachePath: 'in place',
    modelFiles: [],
    run: (request, { signal }) => {
      requests.push(request)
      return run(request, logitsOf, signal)
    },
    fitAdapter: () => {
      throw new Error('the scripted engine has no layers')
    },
    onStep: () => undefined,
    stats: () => {
      throw new Error('the scripted engine counts nothing')
    },
    close: async () => undefined,
  }
}

async function run(
  request: SequenceRequest,
  logitsOf: LogitsOf,
  signal: AbortSignal,
): Promise<SequenceEnd> {
  const { promptTokenIds, generatedTokenIds, maxNewTokens, endTokenIds } = request
  const tokenIds = [...promptTokenIds, ...generatedTokenIds]
  if (request.onPromptLogits !== undefined) {
    promptTokenIds.forEach((_, position) => {
      request.onPromptLogits?.(position, logitsOf(promptTokenIds.slice(0, position + 1)))
    })
  }
  for (let position = generatedTokenIds.length; position < maxNewTokens; position += 1) {
    await new Promise((resolve) => setImmediate(resolve))
    if (signal.aborted) throw new CancelledError()
    const token = request.sampler.next(logitsOf(tokenIds), position)
    if (endTokenIds.has(token.tokenId)) return { reason: 'endOfText', cachedTokens: 3 }
    tokenIds.push(token.tokenId)
    if (!request.onToken(token)) return { reason: 'stopped', cachedTokens: 3 }
  }
  return { reason: 'length', cachedTokens: 3 }
}

/** Logits that look random but depend on the last two tokens alone. */
export const babble: LogitsOf = (tokenIds) => {
  const [a = 1, b = 1] = tokenIds.slice(-2)
  return Float32Array.from({ length: VOCABULARY }, (_, id) => {
    if (id < 3) return -9
    return 3 * Math.sin(id * 12.9898 + a * 78.233 + b * 37.719)
  })
}

/** Writes one text after any prompt, then the end token. */
export function writes(answer: readonly number[], promptLength: number, endToken = 2): LogitsOf {
  return (tokenIds) => {
    const logits = new Float32Array(VOCABULARY)
    logits[answer[tokenIds.length - promptLength] ?? endToken] = 12
    return logits
  }
}
