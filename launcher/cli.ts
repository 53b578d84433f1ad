import { AssertionError } from 'node:assert'
import { existsSync } from 'node:fs'
import { join } from 'node:path'

import { describeConfig, type Env, loadConfig, renderEnvExample } from '#shared/config/config.ts'
import { readVersion } from '#shared/process.ts'

import { trustAuthorities } from './authorities.ts'
import { type Arguments, isCommand, parseCommandLine, UsageError, usage } from './command-line.ts'
import { serve } from './commands/serve.ts'
import { importDirectly } from './direct-imports.ts'
import { withRunningInstallation } from './running.ts'

type Run = (env: Env, args: Arguments) => Promise<void>

// Tiers and tools are loaded on demand, because a worker needs no database driver.
const COMMANDS: Readonly<Record<string, Run>> = {
  up: async (env) => (await import('./commands/up.ts')).up(env),
  api: async (env) => {
    const { runApi } = await import('#api/server/main.ts')
    const { blameDatabase } = await import('./reach.ts')
    await serve(runApi(env).catch((error: unknown) => blameDatabase(env, error)))
  },
  worker: async (env) => serve((await import('#workers/server/main.ts')).runWorker(env)),
  migrate: async (env) =>
    (await import('./commands/migrate.ts')).runMigrations(await withRunningInstallation(env)),
  keys: async (env, args) =>
    (await import('./commands/keys.ts')).keys(await withRunningInstallation(env), args),
  users: async (env, args) =>
    (await import('./commands/users.ts')).users(await withRunningInstallation(env), args),
  models: async (env, args) => (await import('./commands/models.ts')).models(env, args),
  'fine-tune': async (env, args) => {
    // Another installation needs no database here.
    const own = args.options.url === undefined ? await withRunningInstallation(env) : env
    await (await import('./commands/fine-tune.ts')).fineTune(own, args)
  },
  'dead-letters': async (env, args) =>
    (await import('./commands/dead-letters.ts')).deadLetters(
      await withRunningInstallation(env),
      args,
    ),
  init: async (_env, args) => (await import('./commands/init.ts')).init(args),
  config: showConfig,
  doctor: async (env) => (await import('./commands/doctor.ts')).doctor(env),
}

// These commands continue when their output is closed.
const SERVING: readonly string[] = ['up', 'api', 'worker']
const STATUS_OF_BROKEN_PIPE = 141 // 128 plus the number of SIGPIPE, as shells report it
const EXIT_DELAY_MS = 5000

// Errors that indicate a bug.
const BUGS = [TypeError, ReferenceError, RangeError, AssertionError] as const

await main(process.argv.slice(2))

async function main(argv: readonly string[]): Promise<void> {
  importDirectly()
  // A reader such as `head` that closes the pipe is not an error.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error
    if (!SERVING.includes(argv[0] ?? '')) process.exit(STATUS_OF_BROKEN_PIPE)
  })
  try {
    enterHome(process.env.MILLRACE_HOME)
    // Variables that are already set take precedence over the file.
    if (existsSync('.env')) process.loadEnvFile('.env')
    await runCommand(argv)
  } catch (error) {
    console.error(explain(error))
    await end(error instanceof UsageError ? 2 : 1)
  }
}

/** Settings, data and relative paths belong to this folder: the project, unless it is a package. */
function enterHome(home: string | undefined): void {
  try {
    process.chdir(home || join(import.meta.dirname, '..'))
  } catch (cause) {
    throw new Error('The folder of MILLRACE_HOME cannot be entered', { cause })
  }
}

/** Ends the process once its output was read, after a bounded wait. */
async function end(status: number): Promise<void> {
  setTimeout(() => process.exit(status), EXIT_DELAY_MS)
  for (const stream of [process.stdout, process.stderr]) {
    await new Promise((resolve) => stream.write('', resolve))
  }
  process.exit(status)
}

async function runCommand([name = 'help', ...rest]: readonly string[]): Promise<void> {
  if (name === '--version' || name === '-v') {
    console.log(await readVersion())
    return
  }
  if (['help', '--help', '-h'].includes(name)) {
    console.log(usage(commandIn(rest)))
    return
  }
  const run = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined
  if (run === undefined) throw new UsageError(`there is no command "${name}"\n\n${usage()}`)
  const args = parseCommandLine(name, rest)
  if (args === undefined) console.log(usage(name))
  else {
    trustAuthorities(process.env.MILLRACE_CA_FILE)
    await run(process.env, args)
  }
}

/** The command whose help is requested, if it exists. */
function commandIn([name]: readonly string[]): string | undefined {
  if (name === undefined || isCommand(name)) return name
  throw new UsageError(`there is no command "${name}"\n\n${usage()}`)
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

/** One sentence for errors that an operator can fix; the stack for bugs. */
function explain(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const isBug = BUGS.some((kind) => error instanceof kind)
  if (isBug) return error.stack ?? error.message
  const cause = error.cause instanceof Error ? error.cause.message : ''
  // The message of a failed query contains the statement and its values.
  if (error.message.startsWith('Failed query') && cause !== '') return `the database: ${cause}`
  return cause === '' || error.message.includes(cause)
    ? error.message
    : `${error.message} (${cause})`
}
