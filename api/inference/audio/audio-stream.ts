import type { SseSerializer } from '#api/inference/generate.ts'

/** Writes a transcript as it is recognized: the text of each window, then the whole. */
export function serializeTranscript(): SseSerializer<'audio'> {
  let sent = ''
  // White space at an end is no part of a transcript: it waits for what follows.
  let waiting = ''
  let windows = 0

  function next(text: string): string {
    const whole = sent === '' ? text.trimStart() : waiting + text
    const visible = whole.trimEnd()
    if (visible === '') return ''
    waiting = whole.slice(visible.length)
    sent += visible
    return sse({ type: 'transcript.text.delta', delta: visible })
  }

  return {
    opening: () => '',
    serialize(event) {
      if (event.type === 'progress') {
        // A worker that replaces a lost one starts from the beginning: text that was already sent
        // is skipped.
        if (event.text === undefined || event.step <= windows) return ''
        windows = event.step
        return next(event.text)
      }
      if (event.type !== 'result') return ''
      const text = event.result.text.trim()
      waiting = ''
      const rest = text.startsWith(sent) ? next(text.slice(sent.length)) : ''
      return rest + sse({ type: 'transcript.text.done', text })
    },
  }
}

function sse(body: object): string {
  return `data: ${JSON.stringify(body)}\n\n`
}
