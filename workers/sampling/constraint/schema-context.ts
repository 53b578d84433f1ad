import type { WorkBudget } from '#workers/preparation/work-budget.ts'

import type { Grammar } from './grammar.ts'
import type { Intersections } from './intersection.ts'
import type { JsonGrammar } from './json-grammar.ts'
import type { Schema } from './schema-merge.ts'

/** The position of the compiler, for messages and for the detection of circular references. */
export interface SchemaPlace {
  readonly path: string
  readonly depth: number
  /** References followed since the last value started. */
  readonly followed: readonly string[]
}

/** The parts of the schema compiler that the compilers of single types use. */
export interface SchemaContext {
  readonly json: JsonGrammar
  readonly intersections: Intersections
  readonly budget: WorkBudget
  compile(schema: unknown, place: SchemaPlace): Grammar
  resolve(schema: unknown, place: SchemaPlace): Schema
  below(place: SchemaPlace, name: string | number): SchemaPlace
  list(keyword: string, value: unknown, place: SchemaPlace): readonly unknown[]
  /** Throws when the grammar would exceed its size limit with this many more nodes. */
  assertNodes(place: SchemaPlace, more: number): void
  refuse(place: SchemaPlace, reason: string): never
}
