import type { ChatMessage, Prompt } from '#shared/contracts/completion.ts'

type ChatPrompt = Extract<Prompt, { form: 'chat' }>

/** A chat without its oldest messages. */
interface TruncatedChat<Read> {
  readonly prompt: ChatPrompt
  readonly read: Read
  readonly droppedCount: number
}

/**
 * Drops as few of the oldest messages of a chat as necessary. System messages at the beginning, the
 * last message of the user, and results of remaining tool calls stay. Undefined when the rest is
 * still too long. A longer chat never has fewer tokens, so a binary search finds the number to
 * drop.
 */
export async function truncateChat<Read>(
  prompt: ChatPrompt,
  read: (prompt: ChatPrompt) => Promise<Read | undefined>,
): Promise<TruncatedChat<Read> | undefined> {
  const { fixed, units } = unitsOf(prompt.messages)
  const droppable = units.filter(({ isDroppable }) => isDroppable)
  const without = (count: number): ChatPrompt => {
    const dropped = new Set(droppable.slice(0, count))
    const kept = units.filter((unit) => !dropped.has(unit)).flatMap(({ messages }) => messages)
    return { ...prompt, messages: [...fixed, ...kept] }
  }
  let best: TruncatedChat<Read> | undefined
  let low = 1
  let high = droppable.length
  while (low <= high) {
    // If the shortest candidate is too long, no other has to be read.
    const count = best === undefined && low === 1 ? high : Math.floor((low + high) / 2)
    const candidate = without(count)
    const found = await read(candidate)
    if (found === undefined) {
      if (count === droppable.length) return undefined
      low = count + 1
    } else {
      const droppedCount = prompt.messages.length - candidate.messages.length
      best = { prompt: candidate, read: found, droppedCount }
      high = count - 1
    }
  }
  return best
}

/** Messages that are dropped together. */
interface Unit {
  readonly messages: ChatMessage[]
  readonly isDroppable: boolean
}

/**
 * The parts of a chat in order. Before the last message of the user, a part is a message of the
 * user with everything that follows it, so that the rest starts with the user again; after it, a
 * part is an answer with the results of its tool calls, of which the last one stays.
 */
function unitsOf(messages: readonly ChatMessage[]): {
  readonly fixed: readonly ChatMessage[]
  readonly units: readonly Unit[]
} {
  const start = messages.findIndex(({ role }) => role !== 'system')
  if (start === -1) return { fixed: messages, units: [] }
  const last = messages.findLastIndex(({ role }) => role === 'user')
  const units: Unit[] = []
  for (let at = start; at < messages.length; at += 1) {
    const message = messages[at] as ChatMessage
    const isOpen = at < last ? message.role !== 'user' : message.role === 'tool'
    const unit = units.at(-1)
    if (unit !== undefined && at !== last && isOpen) unit.messages.push(message)
    else units.push({ messages: [message], isDroppable: at !== last })
  }
  const end = units.pop()
  return {
    fixed: messages.slice(0, start),
    units: end === undefined ? units : [...units, { ...end, isDroppable: false }],
  }
}
