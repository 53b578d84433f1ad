import type { Overview, QueueOverview } from '#api/console/overview.ts'
import type { DependencyState } from '#shared/dependencies.ts'
import type { ServedQueue, WorkerHeartbeat } from '#shared/queue/liveness.ts'

export type { DependencyState, Overview, QueueOverview, ServedQueue, WorkerHeartbeat }

/** One cell of a table. */
export interface Cell {
  readonly text: string
  readonly note?: string
  /** Shown as a bar, from 0 to 1. */
  readonly share?: number
  readonly tone?: 'bad' | 'warn' | 'good'
}

export interface Table {
  readonly id: string
  readonly title: string
  readonly about: string
  readonly columns: readonly { readonly label: string; readonly isNumber?: boolean }[]
  readonly rows: readonly (readonly Cell[])[]
  /** Shown when there are no rows. */
  readonly empty: string
}

export interface Tile {
  readonly label: string
  readonly value: string
  readonly note: string
  readonly tone?: 'bad' | 'warn' | 'good'
}

/** The content of the console's overview: texts and numbers, no markup. */
export interface View {
  readonly tiles: readonly Tile[]
  readonly tables: readonly Table[]
}

export function viewOf(overview: Overview): View
