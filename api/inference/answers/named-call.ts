import { type CallBody, type CallEvent, JsonScanner } from './call-body.ts'

/** A name, a separator and an object of arguments, as Mistral and DeepSeek write calls. */
const HEADERS = [
  // Mistral: name[ARGS]{…}, name[CALL_ID]id[ARGS]{…} or name{…}.
  /^\s*([\w.-]+)\s*(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?\s*(?=\{)/,
  // DeepSeek V3 and R1: function<sep>name, then a fenced block.
  /^\s*function<｜tool▁sep｜>\s*([\w.-]+)\s*```(?:json)?\s*(?=\{)/,
  // Kimi K2: functions.name:index, a token and {…}.
  /^\s*(?:functions\.)?([\w.-]+?)(?::\d+)?\s*<\|tool_call_argument_begin\|>\s*(?=\{)/,
  // DeepSeek V3.1: name<sep>{…}.
  /^\s*([\w.-]+)\s*<｜tool▁sep｜>\s*(?=\{)/,
] as const
const HEADER_LENGTH_MAX = 1024

/** Reads a call whose name precedes the JSON of its arguments. */
export class NamedCall implements CallBody {
  readonly #opening: string
  readonly #showsEnd: boolean
  readonly #scanner = new JsonScanner()
  #text = ''
  #scanned = 0
  #phase: 'header' | 'arguments' | 'ended' = 'header'
  rest: string | undefined

  /** `showsEnd` is true where no closing text follows the arguments. */
  constructor(opening: string, { showsEnd }: { readonly showsEnd: boolean }) {
    this.#opening = opening
    this.#showsEnd = showsEnd
  }

  push(text: string): CallEvent[] {
    this.#text += text
    const events: CallEvent[] = []
    if (this.#phase === 'header' && this.#text.length <= HEADER_LENGTH_MAX + text.length) {
      const head = this.#text.slice(0, HEADER_LENGTH_MAX)
      const match = HEADERS.map((header) => header.exec(head)).find((found) => found !== null)
      if (match !== undefined) {
        this.#phase = 'arguments'
        this.#scanned = match[0].length
        events.push({ name: match[1] as string })
      }
    }
    if (this.#phase !== 'arguments') return events
    const { end, isWhole } = this.#scanner.scan(this.#text, this.#scanned)
    if (end > this.#scanned) events.push({ arguments: this.#text.slice(this.#scanned, end) })
    this.#scanned = end
    if (!isWhole) return events
    this.#phase = 'ended'
    if (this.#showsEnd) this.rest = this.#text.slice(end)
    return events
  }

  finish(): { readonly events: readonly CallEvent[]; readonly rejected: string } {
    const rejected = this.#phase === 'header' ? this.#opening + this.#text : ''
    return { events: [], rejected }
  }
}
