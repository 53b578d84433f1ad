import type { Grammar } from './grammar.ts'

/** Settings of a whole grammar. */
export interface GrammarSurvey {
  readonly deadEnds: ReadonlySet<Grammar>
  readonly numParts: number
}

/**
 * Counts the parts of a grammar and finds those that no text can satisfy: empty byte sets, choices
 * without options, and parts that contain themselves forever. A part is live once all its required
 * parts are; a part that is not live when nothing changes any more is dead.
 */
export function surveyGrammar(root: Grammar): GrammarSurvey {
  const found = new Map<Grammar, Part>([[root, { users: [], lacking: lackingOf(root) }]])
  const alive: Part[] = []
  // A map iteration includes entries that are added during it.
  for (const [grammar, part] of found) {
    if (part.lacking === 0) alive.push(part)
    for (const inner of partsOf(grammar)) {
      const known = found.get(inner)
      if (known !== undefined) known.users.push(part)
      else found.set(inner, { users: [part], lacking: lackingOf(inner) })
    }
  }
  for (let part = alive.pop(); part !== undefined; part = alive.pop()) {
    for (const user of part.users) {
      user.lacking -= 1
      if (user.lacking === 0) alive.push(user)
    }
  }
  const deadEnds = new Set<Grammar>()
  for (const [grammar, { lacking }] of found) if (lacking > 0) deadEnds.add(grammar)
  return { deadEnds, numParts: found.size }
}

interface Part {
  /** One entry for each occurrence. */
  readonly users: Part[]
  /** How many of its parts must become live first. */
  lacking: number
}

function lackingOf(grammar: Grammar): number {
  switch (grammar.kind) {
    case 'bytes':
    case 'later':
      return 0
    case 'oneOf':
      return grammar.members.includes(1) ? 0 : 1
    case 'choice':
    case 'reference':
      return 1
    case 'repeat':
      return grammar.min === 0 ? 0 : 1
    case 'sequence':
      return grammar.parts.length
  }
}

const NOTHING: readonly Grammar[] = []

function partsOf(grammar: Grammar): readonly Grammar[] {
  switch (grammar.kind) {
    case 'bytes':
    case 'oneOf':
    case 'later':
      return NOTHING
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
