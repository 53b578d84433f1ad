import { AssertionError } from 'node:assert'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'

import { describeConfig, loadConfig, renderEnvExample, type Env } from '#shared/config/config.ts'

import { serve } from './commands/serve.ts'
import { UsageError, type Arguments } from './commands/usage.ts'
import { importDirectly } from './direct-imports.ts'
import { withRunningInstallation } from './running.ts'

interface Command {
  readonly about: string
  run(env: Env, args: Arguments): Promise<void>
}

// Tiers and tools are loaded when they are asked for: a worker needs no database driver.
const COMMANDS: Readonly<Record<string, Command>> = {
  up: {
    about: 'start everything on this machine',
    run: async (env) => (await import('./commands/up.ts')).up(env),
  },
  api: {
    about: 'start an API process',
    run: async (env) => serve((await import('#api/main.ts')).runApi(env)),
  },
  worker: {
    about: 'start a worker process',
    run: async (env) => serve((await import('#workers/main.ts')).runWorker(env)),
  },
  migrate: {
    about: 'apply the database migrations',
    run: async (env) =>
      (await import('./commands/migrate.ts')).runMigrations(await withRunningInstallation(env)),
  },
  keys: {
    about: 'create, list or revoke <id>: API keys',
    run: async (env, args) =>
      (await import('./commands/keys.ts')).keys(await withRunningInstallation(env), args),
  },
  users: {
    about: 'list, create <email>, role <user> <role>, delete <user>: users',
    run: async (env, args) =>
      (await import('./commands/users.ts')).users(await withRunningInstallation(env), args),
  },
  models: {
    about: 'list, verify or pull <repository>: models',
    run: async (env, args) => (await import('./commands/models.ts')).models(env, args),
  },
  config: {
    about: 'show the settings in force (--example: .env.example)',
    run: async (env, args) => showConfig(env, args),
  },
  doctor: {
    about: 'check what this installation needs',
    run: async (env) =>
      (await import('./commands/doctor.ts')).doctor(await withRunningInstallation(env)),
  },
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

async function runCommand(argv: readonly string[]): Promise<void> {
  const [name = '--help', ...rest] = argv
  if (name === '--version') {
    console.log(JSON.parse(readFileSync('package.json', 'utf8')).version)
    return
  }
  if (name === '--help' || name === 'help') {
    console.log(usage())
    return
  }
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined
  if (command === undefined) throw new UsageError(`there is no command "${name}"\n\n${usage()}`)
  await command.run(process.env, parseArguments(rest))
}

function parseArguments(rest: readonly string[]): Arguments {
  try {
    const { values, positionals } = parseArgs({
      args: [...rest],
      allowPositionals: true,
      options: {
        name: { type: 'string' },
        scopes: { type: 'string' },
        file: { type: 'string' },
        role: { type: 'string' },
        password: { type: 'string' },
        filter: { type: 'string' },
        page: { type: 'string' },
        example: { type: 'boolean' },
      },
    })
    const options = Object.fromEntries(
      Object.entries(values).map(([key, value]) => [key, String(value)]),
    )
    return { positionals, options }
  } catch (error) {
    throw new UsageError((error as Error).message)
  }
}

async function showConfig(env: Env, { options }: Arguments): Promise<void> {
  if (options.example !== undefined) {
    process.stdout.write(renderEnvExample())
    return
  }
  for (const line of describeConfig(env)) console.log(line)
  loadConfig(env)
}

function usage(): string {
  const lines = Object.entries(COMMANDS).map(([name, { about }]) => `  ${name.padEnd(10)}${about}`)
  return `millrace <command>\n\n${lines.join('\n')}`
}

/** One sentence for what people can mend; the whole of what they cannot. */
function explain(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const isBug = BUGS.some((kind) => error instanceof kind)
  const cause =
    error.cause instanceof Error && error.cause.message !== '' ? ` (${error.cause.message})` : ''
  return isBug ? (error.stack ?? error.message) : `${error.message}${cause}`
}
