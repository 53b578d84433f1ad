import type { Grammar } from './grammar.ts'

/**
 * How many parts a grammar has, and which of them no text can satisfy: sets of no byte, choices
 * without an option, and what holds itself forever. A part is alive once those that it cannot do
 * without are; what has not come alive when nothing changes any more is dead.
 */
export function surveyGrammar(root: Grammar): {
  readonly deadEnds: ReadonlySet<Grammar>
  readonly numParts: number
} {
  const users = usersOfParts(root)
  const dead = new Set(users.keys())
  // The innermost parts stand last, so that most are looked at once.
  const pending = [...dead]
  for (let grammar = pending.pop(); grammar !== undefined; grammar = pending.pop()) {
    if (!dead.has(grammar) || !isAlive(grammar, dead)) continue
    dead.delete(grammar)
    for (const user of users.get(grammar) ?? []) pending.push(user)
  }
  return { deadEnds: dead, numParts: users.size }
}

/** Every part of a grammar with those that hold it. */
function usersOfParts(root: Grammar): ReadonlyMap<Grammar, readonly Grammar[]> {
  const users = new Map<Grammar, Grammar[]>([[root, []]])
  // A map goes on over what is added meanwhile.
  for (const grammar of users.keys()) {
    for (const part of partsOf(grammar)) {
      const known = users.get(part)
      if (known === undefined) users.set(part, [grammar])
      else known.push(grammar)
    }
  }
  return users
}

function isAlive(grammar: Grammar, dead: ReadonlySet<Grammar>): boolean {
  switch (grammar.kind) {
    case 'bytes':
      return true
    case 'oneOf':
      return grammar.members.includes(1)
    case 'choice':
      return grammar.options.some((option) => !dead.has(option))
    case 'repeat':
      return grammar.min === 0 || !dead.has(grammar.body)
    case 'sequence':
    case 'reference':
      return partsOf(grammar).every((part) => !dead.has(part))
  }
}

function partsOf(grammar: Grammar): readonly Grammar[] {
  switch (grammar.kind) {
    case 'bytes':
    case 'oneOf':
      return []
    case 'choice':
      return grammar.options
    case 'repeat':
      return [grammar.body]
    case 'sequence':
      return grammar.parts
    case 'reference':
      return [grammar.resolve()]
  }
}
