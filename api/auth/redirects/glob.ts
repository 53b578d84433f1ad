/** One element of a glob. */
type Token =
  | { readonly kind: 'literal'; readonly character: string }
  | { readonly kind: 'one' }
  | { readonly kind: 'class'; readonly isNegated: boolean; readonly ranges: readonly Range[] }
  | { readonly kind: 'run'; readonly crossesSeparators: boolean }

interface Range {
  readonly from: string
  readonly to: string
}

const SEPARATORS = './'
// Braces multiply: {a,b}{c,d} are four globs. No hand-written list needs more than this.
const ALTERNATIVES_MAX = 256

/**
 * Whether a glob matches the whole text: `*` any run without `.` and `/`, `**` any run, `?` one
 * character but those, `[abc]`, `[a-z]`, `[!a]`, `{a,b}`; `\` escapes the next character. A
 * malformed glob matches nothing.
 *
 * All possible matches are followed in parallel, so the time is the length of the text times the
 * length of the glob, and no text causes backtracking.
 */
export function matchesGlob(glob: string, text: string): boolean {
  const alternatives = expandBraces(glob)
  return alternatives?.some((alternative) => matchesOne(alternative, text)) ?? false
}

function matchesOne(glob: string, text: string): boolean {
  const tokens = tokenize(glob)
  if (tokens === undefined) return false
  let states = closure(tokens, new Set([0]))
  for (const character of text) {
    const next = new Set<number>()
    for (const state of states) {
      const token = tokens[state]
      if (token === undefined || !accepts(token, character)) continue
      next.add(token.kind === 'run' ? state : state + 1)
    }
    states = closure(tokens, next)
    if (states.size === 0) return false
  }
  return states.has(tokens.length)
}

// A run may be empty, so a state before a wildcard is also one after it.
function closure(tokens: readonly Token[], states: Set<number>): Set<number> {
  for (const state of states) {
    if (tokens[state]?.kind === 'run') states.add(state + 1)
  }
  return states
}

function accepts(token: Token, character: string): boolean {
  switch (token.kind) {
    case 'literal':
      return token.character === character
    case 'one':
      return !SEPARATORS.includes(character)
    case 'run':
      return token.crossesSeparators || !SEPARATORS.includes(character)
    case 'class': {
      // A class never matches a separator, like every other wildcard except `**`.
      if (SEPARATORS.includes(character)) return false
      const isListed = token.ranges.some(({ from, to }) => from <= character && character <= to)
      return isListed !== token.isNegated
    }
  }
}

function tokenize(glob: string): Token[] | undefined {
  const tokens: Token[] = []
  const characters = [...glob]
  for (let at = 0; at < characters.length; at += 1) {
    const character = characters[at] as string
    if (character === '\\') {
      at += 1
      tokens.push({ kind: 'literal', character: characters[at] ?? '\\' })
    } else if (character === '*') {
      const crossesSeparators = characters[at + 1] === '*'
      if (crossesSeparators) at += 1
      tokens.push({ kind: 'run', crossesSeparators })
    } else if (character === '?') {
      tokens.push({ kind: 'one' })
    } else if (character === '[') {
      const end = characters.indexOf(']', at + 2)
      if (end === -1) return undefined
      tokens.push(classOf(characters.slice(at + 1, end)))
      at = end
    } else {
      tokens.push({ kind: 'literal', character })
    }
  }
  return tokens
}

function classOf(inside: readonly string[]): Token {
  const isNegated = inside[0] === '!'
  const set = isNegated ? inside.slice(1) : inside
  const ranges: Range[] = []
  for (let at = 0; at < set.length; at += 1) {
    const from = set[at] as string
    const to = set[at + 1] === '-' && set[at + 2] !== undefined ? (set[at + 2] as string) : from
    if (to !== from) at += 2
    ranges.push({ from, to })
  }
  return { kind: 'class', isNegated, ranges }
}

/** The globs without braces that a glob expands to; undefined when its braces are unbalanced. */
export function expandBraces(glob: string): string[] | undefined {
  const open = findUnescaped(glob, '{')
  if (open === -1) return findUnescaped(glob, '}') === -1 ? [glob] : undefined
  const close = closingBrace(glob, open)
  if (close === -1) return undefined
  const [before, after] = [glob.slice(0, open), glob.slice(close + 1)]
  const expanded: string[] = []
  for (const part of splitParts(glob.slice(open + 1, close))) {
    const rest = expandBraces(before + part + after)
    if (rest === undefined || expanded.length + rest.length > ALTERNATIVES_MAX) return undefined
    for (const each of rest) expanded.push(each)
  }
  return expanded
}

function findUnescaped(text: string, wanted: string): number {
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === '\\') at += 1
    else if (text[at] === wanted) return at
  }
  return -1
}

function closingBrace(glob: string, open: number): number {
  let depth = 0
  for (let at = open; at < glob.length; at += 1) {
    if (glob[at] === '\\') at += 1
    else if (glob[at] === '{') depth += 1
    else if (glob[at] === '}') {
      depth -= 1
      if (depth === 0) return at
    }
  }
  return -1
}

function splitParts(inside: string): string[] {
  const parts = ['']
  let depth = 0
  for (let at = 0; at < inside.length; at += 1) {
    const character = inside[at] as string
    if (character === ',' && depth === 0) {
      parts.push('')
      continue
    }
    if (character === '{') depth += 1
    if (character === '}') depth -= 1
    const taken = character === '\\' ? inside.slice(at, at + 2) : character
    parts[parts.length - 1] += taken
    at += taken.length - 1
  }
  return parts
}
