import type { GenerateInput, TokenLogprob } from '#shared/contracts/completion.ts'

import { type Script, speak } from './surface.ts'

/** The tool that the model of these tests calls. */
export const TOOLS = [{ type: 'function', name: 'add' }]

/** An answer that speaks before it calls, in pieces that cut its tags. */
export const CALL = [
  'Sure.',
  '\n<tool_',
  'call>{"name": "add", "argu',
  'ments": {"a"',
  ': 1}}</tool_call>',
]

/** Workers that say these pieces. */
export function script(pieces: readonly string[], last: Parameters<typeof speak>[2] = {}): Script {
  return ({ input }) => speak(input as GenerateInput, pieces, last)
}

/** A token with its log-probability. */
export function logprob(token: string, value: number): TokenLogprob {
  const top = [{ tokenId: 9, token: 'top', bytes: [116], logprob: -0.1 }]
  return { tokenId: 1, token, bytes: [...Buffer.from(token)], logprob: value, top }
}

/** An event of a stream, loosely: tests say what they expect of it. */
export interface StreamEvent {
  readonly type: string
  readonly sequence_number: number
  readonly [field: string]: unknown
}

/** The events of a streamed response. Throws where one is not called by its type. */
export function readEvents(payload: string): StreamEvent[] {
  return payload
    .split('\n\n')
    .filter((text) => text !== '')
    .map((text) => {
      const [, name, data] = /^event: (\S+)\ndata: (.*)$/.exec(text) ?? []
      const event = JSON.parse(data ?? 'null') as StreamEvent
      if (event?.type !== name) throw new Error(`not an event: ${text}`)
      return event
    })
}
