import { BEGINNING_LENGTH_MAX } from './partial-tag.ts'

const BEGINNING = /^\s*\{\s*"input"\s*:\s*"/
const BEGINNING_WITHOUT_SPACES = '{"input":"'
const HIGH_SURROGATE = /[\ud800-\udbff]$/
const LETTERS: Readonly<Record<string, string>> = {
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
  '"': '"',
  '\\': '\\',
  '/': '/',
}

/**
 * Extracts the input of a custom tool from its arguments, `{"input": "…"}`, while they are being
 * written. A piece ends neither within an escape nor between the halves of a surrogate pair.
 * Arguments of another shape are passed on unchanged when they are complete.
 */
export class CustomInput {
  #phase: 'beginning' | 'inside' | 'ended' = 'beginning'
  /** Text that was not read yet. */
  #text = ''
  /** The first half of a surrogate pair whose second half may follow. */
  #half = ''

  /** Takes the next piece of the arguments; returns the piece of the input that it completes. */
  push(text: string): string {
    if (this.#phase === 'ended') return ''
    const isDecided = this.#text.length > BEGINNING_LENGTH_MAX
    this.#text += text
    if (this.#phase === 'beginning') {
      const match = isDecided ? null : BEGINNING.exec(this.#text.slice(0, BEGINNING_LENGTH_MAX))
      if (match === null) return ''
      this.#phase = 'inside'
      this.#text = this.#text.slice(match[0].length)
    }
    const decoded = this.#half + this.#decode()
    const isCut = this.#phase === 'inside' && HIGH_SURROGATE.test(decoded)
    this.#half = isCut ? decoded.slice(-1) : ''
    return isCut ? decoded.slice(0, -1) : decoded
  }

  /** Ends the arguments; returns the rest of the input. */
  finish(): string {
    return this.#phase === 'beginning' ? inputOf(this.#text) : ''
  }

  /** Reads characters and whole escapes up to the end of the string. */
  #decode(): string {
    const text = this.#text
    const token = /[^"\\]+|\\u[0-9a-fA-F]{4}|\\u(?=[0-9a-fA-F]{0,3}[^0-9a-fA-F])|\\[^u]|"/y
    let decoded = ''
    let at = 0
    for (let match = token.exec(text); match !== null; match = token.exec(text)) {
      at = token.lastIndex
      const [found] = match
      if (found === '"') {
        this.#phase = 'ended'
        break
      }
      decoded += found.startsWith('\\') ? unescaped(found) : found
    }
    this.#text = text.slice(at)
    return decoded
  }
}

/** The character of an escape; an escape that JSON does not define stays as written. */
function unescaped(written: string): string {
  if (written.length === 6) return String.fromCharCode(Number.parseInt(written.slice(2), 16))
  return LETTERS[written.slice(1)] ?? written
}

/** The input in arguments that do not begin with it. */
function inputOf(text: string): string {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    // The arguments were cut off before the input, or are not JSON.
    return BEGINNING_WITHOUT_SPACES.startsWith(text.replaceAll(/\s/g, '')) ? '' : text
  }
  if (typeof value !== 'object' || value === null) return text
  if (!('input' in value)) return Object.keys(value).length === 0 ? '' : text
  return typeof value.input === 'string' ? value.input : JSON.stringify(value.input)
}
