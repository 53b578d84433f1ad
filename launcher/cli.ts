import { AssertionError } from 'node:assert'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

import { describeConfig, loadConfig, renderEnvExample, type Env } from '#shared/config/config.ts'

import { isCommand, parseCommandLine, usage } from './command-line.ts'
import { serve } from './commands/serve.ts'
import { UsageError, type Arguments } from './commands/usage.ts'
import { importDirectly } from './direct-imports.ts'
import { withRunningInstallation } from './running.ts'

type Run = (env: Env, args: Arguments) => Promise<void>

// Tiers and tools are loaded when they are asked for: a worker needs no database driver.
const COMMANDS: Readonly<Record<string, Run>> = {
  up: async (env) => (await import('./commands/up.ts')).up(env),
  api: async (env) => {
    const { runApi } = await import('#api/main.ts')
    const { blameDatabase } = await import('./reach.ts')
    await serve(runApi(env).catch((error: unknown) => blameDatabase(env, error)))
  },
  worker: async (env) => serve((await import('#workers/main.ts')).runWorker(env)),
  migrate: async (env) =>
    (await import('./commands/migrate.ts')).runMigrations(await withRunningInstallation(env)),
  keys: async (env, args) =>
    (await import('./commands/keys.ts')).keys(await withRunningInstallation(env), args),
  users: async (env, args) =>
    (await import('./commands/users.ts')).users(await withRunningInstallation(env), args),
  models: async (env, args) => (await import('./commands/models.ts')).models(env, args),
  config: showConfig,
  doctor: async (env) =>
    (await import('./commands/doctor.ts')).doctor(await withRunningInstallation(env)),
}

// What only a mistake in the code throws.
const BUGS = [TypeError, ReferenceError, RangeError, AssertionError] as const

await main(process.argv.slice(2))

async function main(argv: readonly string[]): Promise<void> {
  process.chdir(join(import.meta.dirname, '..'))
  importDirectly()
  // The environment wins over the file: what is set already stays.
  if (existsSync('.env')) process.loadEnvFile('.env')
  try {
    await runCommand(argv)
  } catch (error) {
    console.error(explain(error))
    process.exit(error instanceof UsageError ? 2 : 1)
  }
}

async function runCommand([name = 'help', ...rest]: readonly string[]): Promise<void> {
  if (name === '--version' || name === '-v') {
    console.log(JSON.parse(readFileSync('package.json', 'utf8')).version)
    return
  }
  if (['help', '--help', '-h'].includes(name)) {
    console.log(usage(rest.find(isCommand)))
    return
  }
  const run = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined
  if (run === undefined) throw new UsageError(`there is no command "${name}"\n\n${usage()}`)
  const args = parseCommandLine(name, rest)
  if (args === undefined) console.log(usage(name))
  else await run(process.env, args)
}

async function showConfig(env: Env, { options }: Arguments): Promise<void> {
  if (options.example !== undefined) {
    process.stdout.write(renderEnvExample())
    return
  }
  const inForce = await withRunningInstallation(env).catch(() => env)
  for (const line of describeConfig(inForce)) console.log(line)
  loadConfig(inForce)
}

/** One sentence for what people can mend; the whole of what they cannot. */
function explain(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const isBug = BUGS.some((kind) => error instanceof kind)
  if (isBug) return error.stack ?? error.message
  const cause = error.cause instanceof Error ? error.cause.message : ''
  // The message of a query is the query, with what was to be stored.
  if (error.message.startsWith('Failed query') && cause !== '') return `the database: ${cause}`
  return cause === '' || error.message.includes(cause)
    ? error.message
    : `${error.message} (${cause})`
}
