import { parseDatabaseUrl } from './database-url.ts'
import type { EnvReader } from './env-reader.ts'
import { prefixOn, type QueueRedis, readQueueRedis } from './queue-redis.ts'
import { isLocalRedis, parseRedisUrl } from './redis-url.ts'

/** The infrastructure that both tiers use. */
export interface InfraConfig {
  readonly dataDir: string
  readonly redisUrl: string
  /** Put before every Redis key, so that installations can share one server. */
  readonly redisPrefix: string
  /** The servers of the queues; the first one is that of `redisUrl`. */
  readonly queueRedis: readonly QueueRedis[]
  /** Secrets that encrypt request content in Redis. The first one encrypts; all of them decrypt. */
  readonly encryptionKeys: readonly string[]
  readonly storage: StorageConfig
}

/** The database, which the API tier alone uses. */
export interface DatabaseConfig {
  readonly url: string
  /** A read replica for lists; empty for none. */
  readonly replicaUrl: string
  /** The replica may be this far behind. */
  readonly replicaLagSecondsMax: number
  /** 0 derives the number from the server's limit. */
  readonly maxPoolSize: number
  /** Put before every table name, followed by an underscore; empty for none. */
  readonly tablePrefix: string
}

/** Object storage: an S3 endpoint, or a local directory when no endpoint is given. */
export type StorageConfig =
  | {
      readonly driver: 's3'
      readonly endpoint: string
      readonly bucket: string
      readonly region: string
      readonly accessKeyId: string
      readonly secretAccessKey: string
      /** Names the bucket in the path of URLs instead of in their host. */
      readonly isPathStyle: boolean
    }
  | { readonly driver: 'directory'; readonly path: string }

const ENCRYPTION_KEY_LENGTH_MIN = 32
/** The positions of both servers are compared every second. */
const REPLICA_LAG_SECONDS_MIN = 2

/** Reads the settings of Redis and object storage. */
export function readInfraConfig(env: EnvReader): InfraConfig {
  env.section('Infrastructure')
  // The command line reads this variable first. It is listed here so that it is known and
  // documented.
  env.string('MILLRACE_HOME', {
    about:
      'base folder of .env, models.json and relative paths; if unset, the project, or the current folder for the npm package',
  })
  const dataDir = env.string('MILLRACE_DATA_DIR', {
    about: 'folder for the data of the embedded services and the model cache',
    fallback: '.data',
  })
  // The launcher reads the file before anything connects.
  env.string('MILLRACE_CA_FILE', {
    about:
      'PEM file of further trusted certificate authorities for Redis, Postgres, object storage, mail and the model hub',
  })
  const redisUrl = env.string('REDIS_URL', {
    about:
      'Redis 6.2 or newer with maxmemory-policy noeviction; redis+sentinel://host:26379,host:26379/master and redis+cluster://host,host for several servers, rediss… for TLS; `millrace up` starts one if unset',
    fallback: 'redis://127.0.0.1:6379',
  })
  requireRedisUrl(env, redisUrl)
  const redisPrefix = readRedisPrefix(env, redisUrl)
  const queueRedis = readQueueRedis(env, { redisUrl, redisPrefix })
  const encryptionKeys = readEncryptionKeys(env, queueRedis)
  const storage = readStorage(env, dataDir)
  return { dataDir, redisUrl, redisPrefix, queueRedis, encryptionKeys, storage }
}

function requireRedisUrl(env: EnvReader, url: string): void {
  try {
    parseRedisUrl(url)
  } catch (error) {
    env.problem(`REDIS_URL ${(error as Error).message}`)
  }
}

function readRedisPrefix(env: EnvReader, redisUrl: string): string {
  const prefix = env.string('MILLRACE_REDIS_PREFIX', {
    about: 'prefix of every Redis key, so that installations can share one server',
    fallback: 'millrace',
  })
  if (!/^[\w.{}-]{1,64}$/.test(prefix)) {
    env.problem('MILLRACE_REDIS_PREFIX must be 1 to 64 letters, digits, dots, dashes or braces')
  }
  return prefixOn(redisUrl, prefix)
}

function readEncryptionKeys(env: EnvReader, servers: readonly QueueRedis[]): readonly string[] {
  const name = 'MILLRACE_ENCRYPTION_KEY'
  const keys = env.list(name, {
    about:
      'key that encrypts prompts and answers in Redis: random text of at least 32 characters, the same in both tiers; for a rotation list several, separated by commas: the first encrypts, all decrypt; required unless Redis is on this machine',
    isSecret: true,
  })
  if (keys.some((key) => key.length < ENCRYPTION_KEY_LENGTH_MIN)) {
    env.problem(`${name}: every key must have at least ${ENCRYPTION_KEY_LENGTH_MIN} characters`)
  }
  if (keys.length === 0 && !servers.every(({ redisUrl }) => isLocalRedis(redisUrl))) {
    env.problem(
      `${name} is required, because Redis is on another machine: prompts must not be stored there in clear text; generate one with: openssl rand -hex 32`,
    )
  }
  return keys
}

/** Reads the settings of Postgres. */
export function readDatabaseConfig(env: EnvReader): DatabaseConfig {
  env.section('Database')
  env.oneOf('AUTH_DB_DRIVER', ['postgres'], { about: 'must be postgres', fallback: 'postgres' })
  const url = env.required(['AUTH_DB_DATABASE_URL', 'DATABASE_URL'], {
    about:
      'Postgres connection string; postgres://user@a:5432,b:5432/db?target_session_attrs=read-write names several servers; `millrace up` starts one if unset',
    isSecret: true,
  })
  // The value is not shown because it contains a password.
  if (url !== '' && !/^(postgres|postgresql|socket):|^\//.test(url)) {
    env.problem('AUTH_DB_DATABASE_URL (or DATABASE_URL) must begin with postgres://')
  }
  try {
    parseDatabaseUrl(url)
  } catch (error) {
    env.problem(`AUTH_DB_DATABASE_URL (or DATABASE_URL) ${(error as Error).message}`)
  }
  return {
    url,
    ...readReplica(env),
    maxPoolSize: env.int('AUTH_DB_MAX_POOL_SIZE', {
      about:
        'open connections per process; 0 means a fifth of the max_connections of the server, 20 at most',
      fallback: 0,
      max: 10_000,
    }),
    tablePrefix: readTablePrefix(env),
  }
}

function readReplica(env: EnvReader): Pick<DatabaseConfig, 'replicaUrl' | 'replicaLagSecondsMax'> {
  const name = 'DATABASE_REPLICA_URL'
  const replicaUrl = env.string(name, {
    about: 'connection string of a read replica, which serves lists; the primary if unset',
    fallback: '',
    isSecret: true,
  })
  if (replicaUrl !== '' && !/^postgres(ql)?:\/\//.test(replicaUrl)) {
    env.problem(`${name} must begin with postgres://`)
  }
  try {
    if (parseDatabaseUrl(replicaUrl).mustWrite) {
      env.problem(`${name} must name one server, which takes no writes`)
    }
  } catch (error) {
    env.problem(`${name} ${(error as Error).message}`)
  }
  const replicaLagSecondsMax = env.seconds('MILLRACE_REPLICA_LAG', {
    about: 'lag of the read replica beyond which the primary serves lists',
    fallback: 10,
  })
  if (replicaLagSecondsMax < REPLICA_LAG_SECONDS_MIN) {
    env.problem(`MILLRACE_REPLICA_LAG must be at least ${REPLICA_LAG_SECONDS_MIN} seconds`)
  }
  return { replicaUrl, replicaLagSecondsMax }
}

function readTablePrefix(env: EnvReader): string {
  const prefix = env.string(['AUTH_DB_NAMESPACE', 'DB_NAMESPACE'], {
    about: 'prefix added to all table names',
    fallback: '',
  })
  if (/^[a-z_][a-z0-9_]{0,30}$|^$/.test(prefix)) return prefix
  env.problem('AUTH_DB_NAMESPACE must be lower-case letters, digits and underscores, 31 at most')
  return ''
}

function readStorage(env: EnvReader, dataDir: string): StorageConfig {
  const endpoint = env.url('S3_ENDPOINT', {
    about:
      'URL of S3-compatible object storage; if unset, files are stored in a directory below MILLRACE_DATA_DIR',
  })
  const s3 = {
    bucket: env.string('S3_BUCKET', { about: 'bucket for all objects', fallback: 'millrace' }),
    region: env.string('S3_REGION', { about: 'region of the bucket', fallback: 'us-east-1' }),
    accessKeyId: env.string('S3_ACCESS_KEY_ID', { about: 'S3 access key id', isSecret: true }),
    secretAccessKey: env.string('S3_SECRET_ACCESS_KEY', {
      about: 'S3 secret access key',
      isSecret: true,
    }),
    isPathStyle: env.bool('S3_FORCE_PATH_STYLE', {
      about: 'put the bucket in the path of URLs; false puts it in the host name',
      fallback: true,
    }),
  }
  if (endpoint === '') return { driver: 'directory', path: `${dataDir}/objects` }
  if (s3.accessKeyId === '' || s3.secretAccessKey === '') {
    env.problem('S3_ENDPOINT needs S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY')
  }
  return { driver: 's3', endpoint, ...s3 }
}
