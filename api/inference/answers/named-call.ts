import { type CallBody, type CallEvent, JsonScanner } from './call-body.ts'
import { BEGINNING_LENGTH_MAX } from './partial-tag.ts'

/** A name, a separator and an object of arguments, as Mistral and DeepSeek write calls. */
const HEADERS = [
  // Mistral: name[ARGS]{…}, name[CALL_ID]id[ARGS]{…} or name{…}.
  /^\s*([\w.-]+)\s*(?:\[CALL_ID\]\w*\s*)?(?:\[ARGS\]\s*)?(?=\{)/,
  // DeepSeek V3 and R1: function<sep>name, then a fenced block.
  /^\s*function<｜tool▁sep｜>\s*([\w.-]+)\s*```(?:json)?\s*(?=\{)/,
  // Kimi K2: functions.name:index, a token and {…}.
  /^\s*(?:functions\.)?([\w.-]+?)(?::\d+)?\s*<\|tool_call_argument_begin\|>\s*(?=\{)/,
  // DeepSeek V3.1: name<sep>{…}.
  /^\s*([\w.-]+)\s*<｜tool▁sep｜>\s*(?=\{)/,
] as const

/** Reads a call whose name precedes the JSON of its arguments. */
export class NamedCall implements CallBody {
  readonly #opening: string
  readonly #showsEnd: boolean
  readonly #scanner = new JsonScanner()
  /** The text before the arguments. */
  #text = ''
  #phase: 'header' | 'arguments' | 'ended' = 'header'
  rest: string | undefined

  /** `showsEnd` is true where no closing text follows the arguments. */
  constructor(opening: string, { showsEnd }: { readonly showsEnd: boolean }) {
    this.#opening = opening
    this.#showsEnd = showsEnd
  }

  push(text: string): CallEvent[] {
    if (this.#phase === 'arguments') return this.#readArguments(text)
    if (this.#phase === 'ended') return []
    const isDecided = this.#text.length > BEGINNING_LENGTH_MAX
    this.#text += text
    if (isDecided) return []
    const head = this.#text.slice(0, BEGINNING_LENGTH_MAX)
    const match = HEADERS.map((header) => header.exec(head)).find((found) => found !== null)
    if (match === undefined) return []
    this.#phase = 'arguments'
    const events = this.#readArguments(this.#text.slice(match[0].length))
    return [{ name: match[1] as string }, ...events]
  }

  finish(): { readonly events: readonly CallEvent[]; readonly rejected: string } {
    const rejected = this.#phase === 'header' ? this.#opening + this.#text : ''
    return { events: [], rejected }
  }

  #readArguments(text: string): CallEvent[] {
    const { end, isWhole } = this.#scanner.scan(text, 0)
    if (isWhole) {
      this.#phase = 'ended'
      if (this.#showsEnd) this.rest = text.slice(end)
    }
    return end > 0 ? [{ arguments: text.slice(0, end) }] : []
  }
}
