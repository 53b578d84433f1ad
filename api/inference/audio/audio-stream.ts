import type { SseSerializer } from '#api/inference/generate.ts'
import type { SpokenToken } from '#shared/contracts/audio.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'

import { logprobsOf } from './audio-answer.ts'

/** Writes a transcript as it is recognized: the text of each window, then the whole. */
export function serializeTranscript(): SseSerializer<'audio'> {
  let sent = ''
  // White space at an end is not part of a transcript, so it waits for the next text.
  let waiting = ''
  let windows = 0
  // Tokens of windows whose text is white space wait with it.
  let tokens: SpokenToken[] = []
  let sentTokens = 0

  function next(text: string, logprobs: readonly SpokenToken[] | undefined): string {
    tokens.push(...(logprobs ?? []))
    const whole = sent === '' ? text.trimStart() : waiting + text
    const visible = whole.trimEnd()
    waiting = whole.slice(visible.length)
    if (visible === '') return ''
    sent += visible
    const parts = logprobs === undefined ? {} : logprobsOf({ logprobs: tokens })
    sentTokens += tokens.length
    tokens = []
    return sse({ type: 'transcript.text.delta', delta: visible, ...parts })
  }

  return {
    opening: () => '',
    serialize(event) {
      if (event.type === 'progress') {
        // A worker that replaces a lost one starts from the beginning: text that was already sent
        // is skipped.
        if (event.text === undefined || event.step <= windows) return ''
        windows = event.step
        return next(event.text, event.logprobs)
      }
      if (event.type !== 'result') return ''
      const { result, usage } = event
      const { logprobs } = result
      const text = result.text.trim()
      waiting = ''
      tokens = []
      const unsent = logprobs?.slice(sentTokens)
      const rest = text.startsWith(sent) ? next(text.slice(sent.length), unsent) : ''
      const done = { type: 'transcript.text.done', text, ...logprobsOf(result) }
      return rest + sse({ ...done, usage: presentUsage(usage) })
    },
  }
}

/** The usage of this event counts tokens; the samples of a recording are not tokens. */
function presentUsage({ promptTokens, completionTokens }: TokenUsage): object {
  return {
    type: 'tokens',
    input_tokens: promptTokens,
    output_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
  }
}

function sse(body: object): string {
  return `data: ${JSON.stringify(body)}\n\n`
}
