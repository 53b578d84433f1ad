import { type CallBody, type CallEvent, JsonScanner } from './call-body.ts'
import { BEGINNING_LENGTH_MAX } from './partial-tag.ts'

// The usual order of fields: the name, then an object of arguments, which can be streamed.
const BEGINNING =
  /^\s*\{\s*(?:"tool_call_id"\s*:\s*"[^"\\]*"\s*,\s*)?"(?:tool_)?name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)/
// The name is the only key.
const KEYED_BEGINNING = /^\s*\{\s*("(?:[^"\\]|\\.)*")\s*:\s*(?=\{)/

/** Reads the JSON of one call while it is being written. */
export class JsonCall implements CallBody {
  readonly #opening: string
  readonly #accepts: (name: string) => boolean
  readonly #beginning: RegExp
  readonly #scanner = new JsonScanner()
  /** The text before the arguments. */
  #text = ''
  #phase: 'beginning' | 'arguments' | 'ended' = 'beginning'

  /** `opening` is the text before the body, which is restored when the body is not a call. */
  constructor(opening: string, accepts: (name: string) => boolean = () => true, isKeyed = false) {
    this.#opening = opening
    this.#accepts = accepts
    this.#beginning = isKeyed ? KEYED_BEGINNING : BEGINNING
  }

  push(text: string): CallEvent[] {
    if (this.#phase === 'arguments') return this.#readArguments(text)
    if (this.#phase === 'ended') return []
    const isDecided = this.#text.length > BEGINNING_LENGTH_MAX
    this.#text += text
    // A body without arguments in its first characters is read when it is complete.
    if (isDecided) return []
    const match = this.#beginning.exec(this.#text.slice(0, BEGINNING_LENGTH_MAX))
    const name = match === null ? undefined : parseName(match[1] as string)
    if (match === null || name === undefined || !this.#accepts(name)) return []
    this.#phase = 'arguments'
    return [{ name }, ...this.#readArguments(this.#text.slice(match[0].length))]
  }

  finish(): { readonly events: readonly CallEvent[]; readonly rejected: string } {
    if (this.#phase !== 'beginning') return { events: [], rejected: '' }
    const call = parseWhole(this.#text)
    if (call === undefined || !this.#accepts(call.name)) {
      return { events: [], rejected: this.#opening + this.#text }
    }
    return { events: [{ name: call.name }, { arguments: call.arguments }], rejected: '' }
  }

  #readArguments(text: string): CallEvent[] {
    const { end, isWhole } = this.#scanner.scan(text, 0)
    if (isWhole) this.#phase = 'ended'
    return end > 0 ? [{ arguments: text.slice(0, end) }] : []
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
