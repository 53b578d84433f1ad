import type { LoggerOptions } from '#shared/logger.ts'

import { type AuthConfig, readAuthConfig } from './auth.ts'
import { ConfigError, EnvReader } from './env-reader.ts'
import { type InferenceConfig, readInferenceConfig } from './inference.ts'
import {
  type DatabaseConfig,
  type InfraConfig,
  readDatabaseConfig,
  readInfraConfig,
} from './infra.ts'
import {
  type ContentConfig,
  type LimitsConfig,
  readContentConfig,
  readLimitsConfig,
  readTuningConfig,
  type TuningConfig,
} from './limits.ts'
import {
  readLogConfig,
  readServerConfig,
  readSurfaces,
  type ServerConfig,
  type SurfaceName,
} from './server.ts'
import { readTelemetryConfig, type TelemetryConfig } from './telemetry.ts'

/** The configuration of a worker: it has no HTTP listener, no database and no users. */
export interface WorkerTierConfig {
  readonly log: LoggerOptions
  readonly infra: InfraConfig
  readonly inference: InferenceConfig
  readonly telemetry: TelemetryConfig
}

/** Everything that can be set, nested by subject and frozen. */
export interface Config extends WorkerTierConfig {
  readonly server: ServerConfig
  /** The surfaces that the process serves. The code of the others is not loaded. */
  readonly surfaces: readonly SurfaceName[]
  readonly database: DatabaseConfig
  readonly auth: AuthConfig
  readonly content: ContentConfig
  readonly limits: LimitsConfig
  readonly tuning: TuningConfig
}

/** An environment as `process.env` holds it. */
export type Env = Readonly<Record<string, string | undefined>>

const OUR_PREFIXES = ['MILLRACE_', 'AUTH_', 'S3_', 'GOTRUE_']

/**
 * Reads the whole configuration of the API tier. Throws one `ConfigError` that names every wrong
 * setting. `warnings` has a line for each variable with one of our prefixes that is not a setting,
 * and for each that another spelling overrides.
 */
export function loadConfig(env: Env): { config: Config; warnings: readonly string[] } {
  const reader = new EnvReader(env)
  const config = readAll(reader)
  checkPorts(reader, config)
  if (reader.problems.length > 0) throw new ConfigError(reader.problems)
  const warnings = [
    ...reader.unknownNames(OUR_PREFIXES).map((name) => `${name} is not a setting`),
    ...reader
      .overruledNames()
      .map(({ name, by }) => `${name} is not read: ${by} is set to something else`),
  ]
  return { config: deepFreeze(config), warnings }
}

/** Like `loadConfig`, for a worker: settings that only the API tier needs may be missing. */
export function loadWorkerConfig(env: Env): WorkerTierConfig {
  const reader = new EnvReader(env)
  const config = readShared(reader)
  if (reader.problems.length > 0) throw new ConfigError(reader.problems)
  return deepFreeze(config)
}

/** The text of `.env.example`: every setting with its default, by section. */
export function renderEnvExample(): string {
  const reader = new EnvReader({})
  readAll(reader)
  const lines: string[] = ['# Every setting with its default. The environment wins over this file.']
  let section = ''
  for (const setting of reader.settings) {
    if (setting.section !== section) {
      section = setting.section
      lines.push('', `## ${section}`)
    }
    const [name, ...others] = setting.names
    lines.push(`# ${setting.about}${others.length > 0 ? ` (also ${others.join(', ')})` : ''}`)
    lines.push(`# ${name}=${setting.fallback}`)
  }
  return `${lines.join('\n')}\n`
}

/** The settings in force as lines, with secrets masked. */
export function describeConfig(env: Env): readonly string[] {
  const reader = new EnvReader(env)
  readAll(reader)
  return reader.settings.map((setting) => {
    const spellings = [...setting.names, ...setting.aliases]
    const set = spellings.find((name) => (env[name] ?? '') !== '')
    const given = set === undefined ? setting.fallback : (env[set] ?? '')
    // URLs may contain a password.
    const shown = given
      .replace(/(:\/\/[^\s/?#:]*):[^\s/?#]+@/g, '$1:********@')
      .replace(/([?&][a-z_]*password=)[^\s&]+/g, '$1********')
    const value = set !== undefined && setting.isSecret ? '********' : shown
    return `${set ?? setting.names[0]}=${value}`
  })
}

function readAll(reader: EnvReader): Config {
  return {
    server: readServerConfig(reader),
    surfaces: readSurfaces(reader),
    database: readDatabaseConfig(reader),
    auth: readAuthConfig(reader),
    content: readContentConfig(reader),
    limits: readLimitsConfig(reader),
    tuning: readTuningConfig(reader),
    ...readShared(reader),
  }
}

/** Two servers of one process cannot share a port unless each has its own host. */
function checkPorts(reader: EnvReader, { server, telemetry }: Config): void {
  const { prometheus, metrics } = telemetry
  const hosts = [server.host, prometheus.host]
  const isShared = hosts[0] === hosts[1] || hosts.some((host) => WILDCARD_HOSTS.has(host))
  if (!metrics.isEnabled || !isShared) return
  if (server.port === 0 || server.port !== prometheus.port) return
  reader.problem(
    `PORT and OTEL_EXPORTER_PROMETHEUS_PORT are both ${server.port}: use different ports`,
  )
}

const WILDCARD_HOSTS: ReadonlySet<string> = new Set(['0.0.0.0', '::'])

function readShared(reader: EnvReader): WorkerTierConfig {
  return {
    log: readLogConfig(reader),
    infra: readInfraConfig(reader),
    inference: readInferenceConfig(reader),
    telemetry: readTelemetryConfig(reader),
  }
}

function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value)
    for (const inner of Object.values(value)) deepFreeze(inner)
  }
  return value
}
