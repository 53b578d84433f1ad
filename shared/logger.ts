import { closeSync, mkdirSync, openSync } from 'node:fs'
import { dirname } from 'node:path'

import { destination as openDestination, pino, stdSerializers } from 'pino'

/**
 * The part of the logger that the code uses: structured fields first, a constant message second.
 */
export interface Logger {
  fatal(fields: object, message: string): void
  error(fields: object, message: string): void
  warn(fields: object, message: string): void
  info(fields: object, message: string): void
  debug(fields: object, message: string): void
  child(fields: object): Logger
}

/** Log level and destination. */
export interface LoggerOptions {
  /** `panic` is accepted for compatibility and means `fatal`. */
  readonly level: 'panic' | 'fatal' | 'error' | 'warn' | 'info' | 'debug' | 'silent'
  /** Path of the log file; standard output when absent. */
  readonly file?: string | undefined
  /** Fields on every line, such as the tier. */
  readonly base?: object
}

// Fields with these names are masked at any depth.
const SECRET_FIELDS = [
  'authorization',
  'cookie',
  'password',
  'secret',
  'apikey',
  'prompt',
  'messages',
]

/**
 * Writes JSON lines with UTC timestamps; fields named like secrets are masked. Throws one sentence
 * when the file cannot be written.
 */
export function createLogger(options: LoggerOptions): Logger {
  const level = options.level === 'panic' ? 'fatal' : options.level
  if (options.file !== undefined) assertWritable(options.file)
  return pino(
    {
      level,
      base: options.base ?? {},
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: presentError, error: presentError },
      redact: {
        paths: SECRET_FIELDS.flatMap((name) => [name, `*.${name}`, `*.*.${name}`]),
        censor: '[redacted]',
      },
    },
    openDestination({ dest: options.file ?? 1, mkdir: true, sync: false }),
  )
}

// Postgres quotes row values, such as email addresses, in the detail of an error.
const FIELDS_WITH_VALUES = ['params', 'query', 'detail', 'where', 'internalQuery']
const QUERY_CHARACTERS_MAX = 200

/**
 * Serializes an error with its stack and causes, without the values of its query: they are personal
 * data.
 */
function presentError(error: unknown): unknown {
  if (!(error instanceof Error)) return stdSerializers.err(error as Error)
  const shown: Record<string, unknown> = { ...stdSerializers.err(error) }
  for (const name of FIELDS_WITH_VALUES) delete shown[name]
  for (const { message, query } of failedQueries(error)) {
    const brief = `Failed query: ${query.trim().slice(0, QUERY_CHARACTERS_MAX)}`
    for (const name of ['message', 'stack']) {
      // A replacer function, because the text may contain replacement patterns such as `$&`.
      shown[name] = String(shown[name]).replaceAll(message, () => brief)
    }
  }
  return shown
}

/** The causes whose message is the whole query with its values. */
function failedQueries(error: Error): { message: string; query: string }[] {
  const found: { message: string; query: string }[] = []
  const seen = new Set<unknown>()
  for (let at: unknown = error; at instanceof Error && !seen.has(at); at = at.cause) {
    seen.add(at)
    const { message, query } = at as Error & { query?: unknown }
    if (typeof query === 'string' && message.startsWith('Failed query'))
      found.push({ message, query })
  }
  return found
}

// Checked here, because the log destination would end the process with a stack trace.
function assertWritable(file: string): void {
  try {
    mkdirSync(dirname(file), { recursive: true })
    closeSync(openSync(file, 'a'))
  } catch (error) {
    const { message } = error as Error
    throw new Error(`The log file cannot be written: ${message}; check AUTH_LOG_FILE`, {
      cause: error,
    })
  }
}
