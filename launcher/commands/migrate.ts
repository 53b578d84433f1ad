import { openReachableDatabase } from '#launcher/reach.ts'
import { type Env, loadConfig } from '#shared/config/config.ts'
import { MIGRATIONS_FOLDER, migrate } from '#shared/db/migrate.ts'
import { createLogger } from '#shared/logger.ts'

/** `millrace migrate`: applies the migrations that are not applied yet. */
export async function runMigrations(env: Env): Promise<void> {
  const { config } = loadConfig(env)
  const logger = createLogger({ level: 'warn' })
  const database = await openReachableDatabase(config.database)
  try {
    const { applied } = await migrate({
      pool: database.pool,
      folder: MIGRATIONS_FOLDER,
      tablePrefix: config.database.tablePrefix,
      logger,
    })
    for (const name of applied) console.log(`applied ${name}`)
    console.log(applied.length === 0 ? 'the database is up to date' : `${applied.length} applied`)
  } finally {
    await database.close()
  }
}
