import type { WorkBudget } from '#workers/preparation/work-budget.ts'

import { canonicalText } from './listed-values.ts'
import { commonTypes, type Schema, typesOf } from './schema-merge.ts'

const ANY = ['string', 'number', 'object', 'array', 'boolean', 'null'] as const
const STEPS_PER_PAIR = 20

/** The properties that distinguish a branch from others, read once. */
interface Branch {
  /** The types that are generated for it, and those that are valid for it. */
  readonly written: readonly unknown[]
  readonly valid: readonly unknown[]
  readonly typesKey: string
  /** Its listed values in canonical spelling; undefined if it lists none. */
  readonly values: ReadonlySet<string> | undefined
  /** By name, the listed values of required properties. */
  readonly listed: ReadonlyMap<string, ReadonlySet<string>>
}

/**
 * A value must match exactly one branch of `oneOf`. That is certain when each two branches differ
 * in type, in their listed values, or in a required property whose listed values differ. Branches
 * are looked up by such values: only those that share one, and those without any, are compared.
 */
export function assertDistinguishable(
  schemas: readonly Schema[],
  options: { readonly refuse: (reason: string) => never; readonly budget: WorkBudget },
): void {
  const { refuse, budget } = options
  const branches = schemas.map((schema) => readBranch(schema, budget))
  const index = new BranchIndex(findDiscriminator(branches))
  for (const [at, branch] of branches.entries()) {
    let twin = Number.POSITIVE_INFINITY
    for (const other of index.candidates(branch)) {
      budget.charge(STEPS_PER_PAIR)
      if (other < twin && !areDisjoint(branch, branches[other] as Branch, budget)) twin = other
    }
    if (twin < at) {
      refuse(
        `branches ${twin} and ${at} of 'oneOf' may both match; distinguish them by type or by a ` +
          "required property with 'const', or use 'anyOf'",
      )
    }
    index.add(branch, at)
  }
}

/** Branches by their types, and within a type by the values that distinguish them. */
class BranchIndex {
  readonly #discriminator: string | undefined
  readonly #groups = new Map<string, BranchGroup>()

  constructor(discriminator: string | undefined) {
    this.#discriminator = discriminator
  }

  add(branch: Branch, at: number): void {
    const [kind, values] = this.#keyOf(branch)
    const key = `${kind} ${branch.typesKey}`
    const group: BranchGroup = this.#groups.get(key) ?? {
      kind,
      sample: branch,
      members: [],
      byValue: new Map(),
    }
    this.#groups.set(key, group)
    group.members.push(at)
    for (const value of values) {
      const sharing = group.byValue.get(value)
      if (sharing === undefined) group.byValue.set(value, [at])
      else sharing.push(at)
    }
  }

  /** Earlier branches that may not be disjoint from a branch. */
  *candidates(branch: Branch): Iterable<number> {
    const [kind, values] = this.#keyOf(branch)
    for (const group of this.#groups.values()) {
      if (sharedTypes(branch, group.sample).length === 0) continue
      if (kind === 'other' || group.kind !== kind) yield* group.members
      else for (const value of values) yield* group.byValue.get(value) ?? []
    }
  }

  #keyOf(branch: Branch): readonly [BranchGroup['kind'], ReadonlySet<string>] {
    if (branch.values !== undefined) return ['listed', branch.values]
    // Only branches that are objects are distinguished by a property.
    const isObject = branch.written.length === 1 && branch.written[0] === 'object'
    const values = isObject ? branch.listed.get(this.#discriminator ?? '') : undefined
    return values === undefined ? ['other', NO_VALUES] : ['discriminated', values]
  }
}

interface BranchGroup {
  readonly kind: 'listed' | 'discriminated' | 'other'
  /** All members have the types of this one. */
  readonly sample: Branch
  readonly members: number[]
  readonly byValue: Map<string, number[]>
}

const NO_VALUES: ReadonlySet<string> = new Set()

/** The required property that lists its values in most branches. */
function findDiscriminator(branches: readonly Branch[]): string | undefined {
  const counts = new Map<string, number>()
  for (const { listed } of branches) {
    for (const name of listed.keys()) counts.set(name, (counts.get(name) ?? 0) + 1)
  }
  let best: string | undefined
  for (const [name, count] of counts) {
    if (count > (counts.get(best ?? '') ?? 0)) best = name
  }
  return best
}

function areDisjoint(a: Branch, b: Branch, budget: WorkBudget): boolean {
  if (a.values !== undefined && b.values !== undefined) {
    if (shareNone(a.values, b.values, budget)) return true
  }
  const shared = sharedTypes(a, b)
  // Only objects have properties that distinguish them.
  if (shared.some((type) => type !== 'object')) return false
  if (shared.length === 0) return true
  const [fewer, more] = a.listed.size <= b.listed.size ? [a, b] : [b, a]
  for (const [name, values] of fewer.listed) {
    budget.charge()
    const others = more.listed.get(name)
    if (others !== undefined && shareNone(values, others, budget)) return true
  }
  return false
}

function shareNone(a: ReadonlySet<string>, b: ReadonlySet<string>, budget: WorkBudget): boolean {
  const [fewer, more] = a.size <= b.size ? [a, b] : [b, a]
  for (const value of fewer) {
    budget.charge()
    if (more.has(value)) return false
  }
  return true
}

/**
 * The types that are generated for one schema and valid for the other. A schema without a type
 * accepts any type, although only the type of its keywords is generated.
 */
function sharedTypes(a: Branch, b: Branch): readonly unknown[] {
  return [...commonTypes(a.written, b.valid), ...commonTypes(b.written, a.valid)]
}

function readBranch(schema: Schema, budget: WorkBudget): Branch {
  const written = typesOf(schema) ?? ANY
  const valid = schema.type === undefined ? ANY : written
  const listed = new Map<string, ReadonlySet<string>>()
  const required = Array.isArray(schema.required) ? schema.required : []
  budget.charge(required.length + written.length)
  for (const name of new Set(required.map(String))) {
    const values = valuesOf(propertyOf(schema, name), budget)
    if (values !== undefined) listed.set(name, values)
  }
  const typesKey = JSON.stringify([written, valid])
  return { written, valid, typesKey, values: valuesOf(schema, budget), listed }
}

/** The values that a schema lists. */
function valuesOf(schema: Schema, budget: WorkBudget): ReadonlySet<string> | undefined {
  if (schema.const !== undefined) return new Set([canonicalText(schema.const, budget)])
  if (!Array.isArray(schema.enum)) return undefined
  return new Set(schema.enum.map((value) => canonicalText(value, budget)))
}

function propertyOf(schema: Schema, name: string): Schema {
  const properties = schema.properties as Readonly<Record<string, unknown>> | undefined
  const property =
    Object(properties) === properties && Object.hasOwn(Object(properties), name)
      ? properties?.[name]
      : undefined
  return typeof property === 'object' && property !== null ? (property as Schema) : {}
}
