/**
 * The author of a part of a prompt. `template` is the text of the model's own chat template,
 * `answer` a turn of the assistant that the client sends back, `content` anything else that a
 * client supplied.
 */
export type Origin = 'template' | 'answer' | 'content'

/** A part of a text that the chat template did not write. */
export interface ContentSpan {
  readonly start: number
  readonly end: number
  readonly origin: Exclude<Origin, 'template'>
}

/** A prompt and which parts of it are content; plain JSON, so that it can cross to a thread. */
export interface RenderedText {
  readonly text: string
  /** In order, without overlaps. Content encodes no control tokens. */
  readonly content: readonly ContentSpan[]
}

/** A text that is content from its first character to its last. */
export function contentOnly(text: string): RenderedText {
  return { text, content: [{ start: 0, end: text.length, origin: 'content' }] }
}

/** The first `end` characters. */
export function cutText({ text, content }: RenderedText, end: number): RenderedText {
  return {
    text: text.slice(0, end),
    content: content
      .filter(({ start }) => start < end)
      .map((span) => ({ ...span, end: Math.min(span.end, end) })),
  }
}
