/** The parts of a body as it streams: its name once, then its arguments in chunks. */
type ToolCallEvent = { name: string } | { arguments: string }

// The order in which models write: the name, then an object of arguments, which can be streamed.
const BEGINNING =
  /^\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)/
// A body that has not shown its arguments by then is read when it is complete.
const BEGINNING_LENGTH_MAX = 4096

/** Reads the JSON of one call while it is being written. */
export class ToolCallBody {
  readonly #opening: string
  #text = ''
  #scanned = 0
  #depth = 0
  #isInString = false
  #isEscaped = false
  #phase: 'beginning' | 'arguments' | 'ended' = 'beginning'

  /** `opening` is the text before the body, to be given back when it is no call after all. */
  constructor(opening: string) {
    this.#opening = opening
  }

  push(text: string): ToolCallEvent[] {
    this.#text += text
    const events: ToolCallEvent[] = []
    if (this.#phase === 'beginning' && this.#text.length <= BEGINNING_LENGTH_MAX) {
      const match = BEGINNING.exec(this.#text)
      const name = match === null ? undefined : parseName(match[1] as string)
      if (match !== null && name !== undefined) {
        this.#phase = 'arguments'
        this.#scanned = match[0].length
        events.push({ name })
      }
    }
    if (this.#phase === 'arguments') {
      const piece = this.#scanArguments()
      if (piece !== '') events.push({ arguments: piece })
    }
    return events
  }

  /** Ends the body. `rejected` is its whole text when it was no call. */
  finish(): { readonly events: readonly ToolCallEvent[]; readonly rejected: string } {
    if (this.#phase !== 'beginning') return { events: [], rejected: '' }
    const call = parseWhole(this.#text)
    if (call === undefined) return { events: [], rejected: this.#opening + this.#text }
    return { events: [{ name: call.name }, { arguments: call.arguments }], rejected: '' }
  }

  /** The next piece of the arguments, up to the brace that closes them. */
  #scanArguments(): string {
    const start = this.#scanned
    while (this.#scanned < this.#text.length) {
      const character = this.#text[this.#scanned] as string
      this.#scanned += 1
      if (this.#isInString) {
        if (this.#isEscaped) this.#isEscaped = false
        else if (character === '\\') this.#isEscaped = true
        else if (character === '"') this.#isInString = false
      } else if (character === '"') {
        this.#isInString = true
      } else if (character === '{' || character === '[') {
        this.#depth += 1
      } else if (character === '}' || character === ']') {
        this.#depth -= 1
        if (this.#depth === 0) {
          this.#phase = 'ended'
          break
        }
      }
    }
    return this.#text.slice(start, this.#scanned)
  }
}

function parseName(json: string): string | undefined {
  try {
    return JSON.parse(json) as string
  } catch {
    // The name holds an escape that JSON does not know; the whole body will be refused alike.
    return undefined
  }
}

function parseWhole(text: string): { name: string; arguments: string } | undefined {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    // No JSON, no call.
    return undefined
  }
  if (typeof value !== 'object' || value === null || !('name' in value)) return undefined
  if (typeof value.name !== 'string') return undefined
  const found =
    'arguments' in value ? value.arguments : 'parameters' in value ? value.parameters : {}
  return {
    name: value.name,
    arguments: typeof found === 'string' ? found : JSON.stringify(found ?? {}),
  }
}
