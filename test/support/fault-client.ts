import { defined } from '#shared/json.ts'

import { API_KEY } from './tiers.ts'

/** The answer that a client got to one request, with its times. */
export interface Seen {
  readonly status: number
  /** The text of the answer, or of the error. */
  text: string
  /** Chunks that carried text, with their times on the monotonic clock. */
  readonly chunkAtMs: number[]
  numDone: number
  finishReason: string | null
  error: unknown
}

// Ids 0, 1 and 2 end the text of the shipped model; without them it goes on to the limit.
const ENDLESS = { '0': -100, '1': -100, '2': -100 }

/** A request for text of exactly `tokens` tokens. */
export function completionBody(
  tokens: number,
  changes: Readonly<Record<string, unknown>> = {},
): Record<string, unknown> {
  return {
    model: 'tiny-chat',
    prompt: 'Once upon a time',
    max_tokens: tokens,
    temperature: 0,
    frequency_penalty: 0.7,
    logit_bias: ENDLESS,
    stream: true,
    ...changes,
  }
}

/** Posts JSON with the key of these tests. */
export function post(
  url: string,
  path: string,
  body: unknown,
  options: { readonly headers?: Record<string, string>; readonly signal?: AbortSignal } = {},
): Promise<Response> {
  return fetch(`${url}${path}`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${API_KEY}`,
      'content-type': 'application/json',
      ...options.headers,
    },
    body: JSON.stringify(body),
    ...(options.signal && { signal: options.signal }),
  })
}

/** Reads a completion, streamed or not, to its end. */
export async function readCompletion(
  url: string,
  body: Readonly<Record<string, unknown>>,
  options: {
    readonly headers?: Record<string, string>
    readonly signal?: AbortSignal
    readonly onChunk?: (seen: Seen) => void
  } = {},
): Promise<Seen> {
  const answer = await post(url, '/v1/completions', body, options)
  const seen: Seen = {
    status: answer.status,
    text: '',
    chunkAtMs: [],
    numDone: 0,
    finishReason: null,
    error: undefined,
  }
  if (!answer.ok || body.stream !== true) {
    const text = await answer.text()
    const { choices, error } = JSON.parse(text)
    seen.text = choices?.[0]?.text ?? text
    seen.finishReason = choices?.[0]?.finish_reason ?? null
    seen.error = error
    return seen
  }
  let rest = ''
  for await (const bytes of defined(answer.body).pipeThrough(new TextDecoderStream())) {
    const lines = (rest + bytes).split('\n\n')
    rest = lines.pop() ?? ''
    for (const line of lines) take(seen, line.slice('data: '.length), options.onChunk)
  }
  return seen
}

function take(seen: Seen, data: string, onChunk: ((seen: Seen) => void) | undefined): void {
  if (data === '[DONE]') {
    seen.numDone += 1
    return
  }
  const { choices, error } = JSON.parse(data)
  if (error !== undefined) seen.error = error
  seen.text += choices?.[0]?.text ?? ''
  seen.finishReason ??= choices?.[0]?.finish_reason ?? null
  seen.chunkAtMs.push(performance.now())
  onChunk?.(seen)
}
