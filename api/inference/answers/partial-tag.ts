/** How many characters at the end of a text could be the beginning of a tag. */
export function partialTagLength(text: string, tag: string): number {
  for (let length = Math.min(tag.length - 1, text.length); length > 0; length -= 1) {
    if (text.endsWith(tag.slice(0, length))) return length
  }
  return 0
}

/**
 * The first of some tags in a text, or how much of the text's end could be the beginning of one.
 */
export function findTag(
  text: string,
  tags: readonly string[],
):
  | { readonly tag: string; readonly at: number }
  | { readonly tag: undefined; readonly at: number } {
  let found: { tag: string; at: number } | undefined
  for (const tag of tags) {
    const at = text.indexOf(tag)
    const isBetter = found === undefined || at < found.at
    const isLonger = at === found?.at && tag.length > found.tag.length
    if (at >= 0 && (isBetter || isLonger)) found = { tag, at }
  }
  const held = text.length - Math.max(0, ...tags.map((tag) => partialTagLength(text, tag)))
  // A longer tag may still begin where a shorter one was found.
  const isLonger = (tag: string): boolean =>
    found !== undefined &&
    tag.startsWith(text.slice(found.at)) &&
    text.length - found.at < tag.length
  if (found !== undefined && !tags.some(isLonger)) return found
  return { tag: undefined, at: Math.min(held, found?.at ?? held) }
}

/**
 * How much of a text decides what it is: the beginning of an answer or call, the name of a function
 * or parameter. It is read again with each piece, so a longer one would take quadratic time.
 */
export const BEGINNING_LENGTH_MAX = 1024

/** Withholds the white space at the end of a text that arrives in pieces. */
export class TrailingSpace {
  #held = ''

  /** The text that follows what was returned before, without the white space at its end. */
  push(text: string): string {
    const visible = text.trimEnd()
    if (visible === '') {
      this.#held += text
      return ''
    }
    const whole = this.#held + visible
    this.#held = text.slice(visible.length)
    return whole
  }

  /** The withheld white space, which is then no longer withheld. */
  take(): string {
    const held = this.#held
    this.#held = ''
    return held
  }
}
