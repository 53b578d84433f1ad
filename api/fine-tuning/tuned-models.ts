import { and, asc, eq, isNull, or, sql } from 'drizzle-orm'

import type { CatalogueModel } from '#shared/catalogue.ts'
import type { Clock } from '#shared/clock.ts'
import { unixSeconds } from '#shared/clock.ts'
import { type Db, prepared } from '#shared/db/client.ts'
import type { TunedModelRow, TuningTables } from '#shared/db/schema/fine-tuning.ts'

/** The prefix of the name of every tuned model. */
const TUNED_PREFIX = 'ft:'

/** Other processes may serve a deleted model for this long. */
const CACHED_MS = 1000
const CACHED_MAX = 1000
const LISTED_MAX = 10_000

interface Cached {
  readonly row: TunedModelRow
  readonly readAtMs: number
}

/** The name of the model of a job. */
export function tunedModelName(job: {
  readonly id: string
  readonly model: string
  readonly organizationId: string
  readonly suffix: string
}): string {
  const { id, model, organizationId, suffix } = job
  return `${TUNED_PREFIX}${model}:${organizationId}:${suffix}:${id.slice(-8)}`
}

/** The name of a checkpoint of a model. */
export function checkpointName(model: string, step: number): string {
  return `${model}:ckpt-step-${step}`
}

interface TunedModelServices {
  readonly db: Db
  readonly tables: Pick<TuningTables, 'models'>
  readonly clock: Pick<Clock, 'monotonic'>
  /** The base model with an id. */
  readonly findBase: (id: string) => CatalogueModel | undefined
}

/** The tuned models of a database; each belongs to one organization. */
export class TunedModels {
  readonly #services: TunedModelServices
  readonly #cache = new Map<string, Cached>()

  constructor(services: TunedModelServices) {
    this.#services = services
  }

  /** A model of the organization by its name; undefined for models of others. */
  async find(organizationId: string, name: string): Promise<CatalogueModel | undefined> {
    if (!name.startsWith(TUNED_PREFIX)) return undefined
    const row = await this.#read(name)
    return row?.organizationId === organizationId ? this.#present(row) : undefined
  }

  /** The results of the organization's jobs, the oldest first. */
  async list(organizationId: string): Promise<CatalogueModel[]> {
    const { db, tables } = this.#services
    const statement = prepared(db, 'list_tuned_models', (name) => prepareList(db, tables, name))
    const rows = await statement.execute({ organizationId })
    return rows.flatMap((row) => this.#present(row) ?? [])
  }

  /**
   * Deletes a model; if it is the result of a job, also its checkpoints. Returns the deleted rows.
   */
  async delete(organizationId: string, name: string): Promise<readonly TunedModelRow[]> {
    const { db, tables } = this.#services
    const { models } = tables
    const row = await this.#read(name)
    if (row === undefined || row.organizationId !== organizationId) return []
    const isMeant = row.step === null ? eq(models.jobId, row.jobId) : eq(models.id, name)
    const deleted = await db
      .delete(models)
      .where(and(eq(models.organizationId, organizationId), or(isMeant)))
      .returning()
    for (const { id } of deleted) this.#cache.delete(id)
    return deleted
  }

  /** Misses are not cached, so that a new model is found at once. */
  async #read(name: string): Promise<TunedModelRow | undefined> {
    const { db, tables, clock } = this.#services
    const nowMs = clock.monotonic()
    const cached = this.#cache.get(name)
    if (cached !== undefined && nowMs - cached.readAtMs < CACHED_MS) return cached.row
    this.#cache.delete(name)
    const { models } = tables
    const [row] = await db.select().from(models).where(eq(models.id, name))
    if (row === undefined) return undefined
    // The oldest entry is first.
    for (const oldest of this.#cache.keys()) {
      if (this.#cache.size < CACHED_MAX) break
      this.#cache.delete(oldest)
    }
    this.#cache.set(name, { row, readAtMs: nowMs })
    return row
  }

  /** Undefined when the base model is no longer offered. */
  #present(row: TunedModelRow): CatalogueModel | undefined {
    const base = this.#services.findBase(row.model)
    if (base === undefined) return undefined
    return {
      ...base,
      id: row.id,
      aliases: [],
      ownedBy: row.organizationId,
      created: unixSeconds(row.createdAt.getTime()),
      capabilities: base.capabilities.filter((name) => name !== 'fine-tune'),
      adapter: { baseId: base.id, source: `s3:${row.prefix}` },
    }
  }
}

function prepareList(db: Db, { models }: TunedModelServices['tables'], name: string) {
  return db
    .select()
    .from(models)
    .where(and(eq(models.organizationId, sql.placeholder('organizationId')), isNull(models.step)))
    .orderBy(asc(models.createdAt), asc(models.id))
    .limit(LISTED_MAX)
    .prepare(name)
}
