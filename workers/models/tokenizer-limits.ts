import { isRecord } from '#shared/records.ts'

const TOKEN_IDS_MAX = 4_000_000 // the largest published vocabularies have some 500,000
const PATTERN_LENGTH_MAX = 4096
const STEPS_DEPTH_MAX = 16

/**
 * Checks a `tokenizer.json` before anything is built of it. Throws a sentence when token ids would
 * take memory without bound, or a pattern could take time without bound on a short text.
 */
export function checkTokenizerJson(json: Readonly<Record<string, unknown>>): void {
  const { model } = json
  const vocabulary = isRecord(model) ? model.vocab : undefined
  if (!Array.isArray(vocabulary) && !isRecord(vocabulary)) {
    throw new Error('tokenizer.json has no vocabulary')
  }
  const added = Array.isArray(json.added_tokens) ? json.added_tokens : []
  const ids = Array.isArray(vocabulary)
    ? [vocabulary.length]
    : Object.values(vocabulary as Record<string, unknown>)
  const wrong = [...ids, ...added.map((token) => (isRecord(token) ? token.id : token))].find(
    (id) => !Number.isInteger(id) || (id as number) < 0 || (id as number) > TOKEN_IDS_MAX,
  )
  if (wrong !== undefined) {
    throw new Error(`tokenizer.json: ${String(wrong).slice(0, 40)} is not a token id`)
  }
  for (const step of ['normalizer', 'pre_tokenizer', 'decoder']) checkPatterns(json[step], step, 0)
}

function checkPatterns(value: unknown, path: string, depth: number): void {
  if (typeof value !== 'object' || value === null) return
  if (depth > STEPS_DEPTH_MAX) throw new Error(`tokenizer.json: ${path} is nested too deeply`)
  for (const [name, inner] of Object.entries(value)) {
    if (name === 'Regex' && typeof inner === 'string') checkPattern(inner, path)
    else checkPatterns(inner, `${path}.${name}`, depth + 1)
  }
}

function checkPattern(pattern: string, path: string): void {
  if (pattern.length > PATTERN_LENGTH_MAX) {
    throw new Error(`tokenizer.json: the pattern of ${path} is too long`)
  }
  if (!mayBacktrackExponentially(pattern)) return
  const shown = pattern.slice(0, 80)
  throw new Error(
    `tokenizer.json: the pattern ${shown} of ${path} repeats a group that repeats or branches, ` +
      'which can take exponential time',
  )
}

interface Group {
  /** Whether it can match the same text in several ways. */
  isAmbiguous: boolean
}

/**
 * Whether a pattern repeats a group within which something repeats or branches, such as `(a+)+` or
 * `(a|a)*`. No published tokenizer does.
 */
export function mayBacktrackExponentially(pattern: string): boolean {
  const open: Group[] = [{ isAmbiguous: false }]
  for (let at = 0; at < pattern.length; at += 1) {
    const group = open.at(-1) as Group
    const character = pattern[at] as string
    if (character === '\\') at += 1
    else if (character === '[') at = endOfClass(pattern, at)
    else if (character === '|') group.isAmbiguous = true
    else if (character === '(') open.push({ isAmbiguous: false })
    else if (character === ')' && open.length > 1) {
      open.pop()
      const outer = open.at(-1) as Group
      if (group.isAmbiguous && repeats(pattern, at + 1)) return true
      if (group.isAmbiguous) outer.isAmbiguous = true
    } else if (repeats(pattern, at) && '*+{'.includes(character)) group.isAmbiguous = true
  }
  return false
}

/** Whether a quantifier at this place allows more than one. */
function repeats(pattern: string, at: number): boolean {
  const [quantifier] = /^(?:[*+]|\{\d*,?\d*\})/.exec(pattern.slice(at, at + 24)) ?? []
  return quantifier !== undefined && !/^\{0?,?1?\}$|^\{[01],1\}$/.test(quantifier)
}

function endOfClass(pattern: string, start: number): number {
  for (let at = start + 1; at < pattern.length; at += 1) {
    if (pattern[at] === '\\') at += 1
    else if (pattern[at] === ']' && at > start + 1) return at
  }
  return pattern.length
}
