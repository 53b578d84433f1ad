import type { ChatMessage } from '#shared/contracts/completion.ts'

/** A message as far as templates read it as text and images. */
export type Turn = Pick<ChatMessage, 'content' | 'images'> & { readonly role: string }

/** A message with its content as templates of models of images read it. */
interface TurnOfParts {
  readonly role: string
  readonly content: readonly (
    | { readonly type: 'text'; readonly text: string }
    | { type: 'image' }
  )[]
}

/**
 * Makes messages what a template reads: with their content as text, or as parts where there are
 * images or the template shows no other form. `render` shows one message by the template.
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
 * Whether a template shows text only where the content is a list of parts, as those of some models
 * of images do.
 */
function isReadAsPartsOnly(render: (turn: object) => string): boolean {
  const turn = { role: 'user', content: PROBE }
  const shows = (message: object): boolean => {
    try {
      return render(message).includes(PROBE)
    } catch {
      // A template may refuse one of the two forms.
      return false
    }
  }
  return !shows(turn) && shows(turnOfParts(turn))
}
