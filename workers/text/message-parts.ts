import type { ChatMessage } from '#shared/contracts/completion.ts'

/** The text and images of a message, for templates. */
export type Turn = Pick<ChatMessage, 'content' | 'images'> & { readonly role: string }

/** A message whose content is in the format of templates for images. */
interface TurnOfParts {
  readonly role: string
  readonly content: readonly (
    | { readonly type: 'text'; readonly text: string }
    | { type: 'image' }
  )[]
}

/**
 * Converts messages to the format that a template reads: with content as text, or as parts if there
 * are images or the template only supports parts. `render` renders one message with the template.
 */
export function createTurnReader(
  render: (turn: object) => string,
): (turn: Turn) => { readonly role: string; readonly content: unknown } {
  let readsPartsOnly: boolean | undefined
  return (turn) => {
    readsPartsOnly ??= isReadAsPartsOnly(render)
    if (readsPartsOnly || turn.images !== undefined) return turnOfParts(turn)
    return { role: turn.role, content: turn.content }
  }
}

/** The content of a message as a list of texts and images, in their order. */
function turnOfParts({ role, content, images = [] }: Turn): TurnOfParts {
  const parts: TurnOfParts['content'][number][] = []
  let start = 0
  const addText = (end: number): void => {
    if (end > start) parts.push({ type: 'text', text: content.slice(start, end) })
    start = end
  }
  for (const { at } of images) {
    addText(at)
    parts.push({ type: 'image' })
  }
  addText(content.length)
  return { role, content: parts }
}

const PROBE = 'probe of the content'

/**
 * Whether a template shows text only if the content is a list of parts, like those of some models
 * for images.
 */
function isReadAsPartsOnly(render: (turn: object) => string): boolean {
  const turn = { role: 'user', content: PROBE }
  const shows = (message: object): boolean => {
    try {
      return render(message).includes(PROBE)
    } catch {
      // A template may refuse one of the two formats.
      return false
    }
  }
  return !shows(turn) && shows(turnOfParts(turn))
}
