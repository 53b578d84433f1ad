import type { SseSerializer } from '#api/inference/event-stream-answer.ts'

/** Writes a transcript as it is recognized: the text of each window, then the whole. */
export function serializeTranscript(): SseSerializer<'audio'> {
  let told = ''
  // White space at an end is no part of a transcript: it waits for what follows.
  let waiting = ''
  let windows = 0

  function next(text: string): string {
    const whole = told === '' ? text.trimStart() : waiting + text
    const visible = whole.trimEnd()
    if (visible === '') return ''
    waiting = whole.slice(visible.length)
    told += visible
    return event({ type: 'transcript.text.delta', delta: visible })
  }

  return {
    opening: () => '',
    serialize(heard) {
      if (heard.type === 'progress') {
        // A worker that replaces a lost one starts from the beginning: text that was already sent
        // is skipped.
        if (heard.text === undefined || heard.step <= windows) return ''
        windows = heard.step
        return next(heard.text)
      }
      if (heard.type !== 'result') return ''
      const text = heard.result.text.trim()
      waiting = ''
      const rest = text.startsWith(told) ? next(text.slice(told.length)) : ''
      return rest + event({ type: 'transcript.text.done', text })
    },
  }
}

function event(body: object): string {
  return `data: ${JSON.stringify(body)}\n\n`
}
