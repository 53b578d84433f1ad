import { type CallBody, type CallEvent, JsonScanner } from './call-body.ts'

// The usual order of fields: the name, then an object of arguments, which can be streamed.
const BEGINNING =
  /^\s*\{\s*(?:"tool_call_id"\s*:\s*"[^"\\]*"\s*,\s*)?"(?:tool_)?name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)/
// The name is the only key.
const KEYED_BEGINNING = /^\s*\{\s*("(?:[^"\\]|\\.)*")\s*:\s*(?=\{)/
// A body without arguments in its first characters is read when it is complete.
const BEGINNING_LENGTH_MAX = 4096

/** Reads the JSON of one call while it is being written. */
export class JsonCall implements CallBody {
  readonly #opening: string
  readonly #accepts: (name: string) => boolean
  readonly #beginning: RegExp
  readonly #scanner = new JsonScanner()
  #text = ''
  #scanned = 0
  #phase: 'beginning' | 'arguments' | 'ended' = 'beginning'

  /** `opening` is the text before the body, which is restored when the body is not a call. */
  constructor(opening: string, accepts: (name: string) => boolean = () => true, isKeyed = false) {
    this.#opening = opening
    this.#accepts = accepts
    this.#beginning = isKeyed ? KEYED_BEGINNING : BEGINNING
  }

  push(text: string): CallEvent[] {
    this.#text += text
    const events: CallEvent[] = []
    if (this.#phase === 'beginning' && this.#text.length <= BEGINNING_LENGTH_MAX) {
      const match = this.#beginning.exec(this.#text)
      const name = match === null ? undefined : parseName(match[1] as string)
      if (match !== null && name !== undefined && this.#accepts(name)) {
        this.#phase = 'arguments'
        this.#scanned = match[0].length
        events.push({ name })
      }
    }
    if (this.#phase === 'arguments') {
      const start = this.#scanned
      const { end, isWhole } = this.#scanner.scan(this.#text, start)
      this.#scanned = end
      if (isWhole) this.#phase = 'ended'
      if (end > start) events.push({ arguments: this.#text.slice(start, end) })
    }
    return events
  }

  finish(): { readonly events: readonly CallEvent[]; readonly rejected: string } {
    if (this.#phase !== 'beginning') return { events: [], rejected: '' }
    const call = parseWhole(this.#text)
    if (call === undefined || !this.#accepts(call.name)) {
      return { events: [], rejected: this.#opening + this.#text }
    }
    return { events: [{ name: call.name }, { arguments: call.arguments }], rejected: '' }
  }
}

function parseName(json: string): string | undefined {
  try {
    return JSON.parse(json) as string
  } catch {
    // The name holds an escape that JSON does not define, so the whole body will be rejected.
    return undefined
  }
}

function parseWhole(text: string): { name: string; arguments: string } | undefined {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    // The text is not JSON, so it is not a call.
    return undefined
  }
  if (typeof value !== 'object' || value === null) return undefined
  // Some models wrap the call like clients do.
  const call: object =
    'function' in value && typeof value.function === 'object' && value.function !== null
      ? value.function
      : value
  const name = 'name' in call ? call.name : 'tool_name' in call ? call.tool_name : undefined
  if (typeof name !== 'string') return undefined
  const found = 'arguments' in call ? call.arguments : 'parameters' in call ? call.parameters : {}
  return {
    name,
    arguments: typeof found === 'string' ? found : JSON.stringify(found ?? {}),
  }
}
