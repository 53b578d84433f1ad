import { isIP, isIPv4 } from 'node:net'

import type { LoggerOptions } from '#shared/logger.ts'

import type { EnvReader } from './env-reader.ts'

/** The surfaces of an API process. */
const SURFACES = ['inference', 'users', 'console', 'playground'] as const
export type SurfaceName = (typeof SURFACES)[number]

/** How the API process listens and drains. */
export interface ServerConfig {
  readonly host: string
  readonly port: number
  /** The request header whose value becomes the request id; empty for none. */
  readonly requestIdHeader: string
  /** Largest JSON body. */
  readonly bodyBytesMax: number
  /** The bytes that all bodies over 16 KiB may take together in one process. */
  readonly largeBodiesBytesMax: number
  readonly drainTimeoutSeconds: number
  /**
   * Trusted proxies, whose X-Forwarded-* headers are used: IP addresses or networks; empty for
   * none.
   */
  readonly trustedProxies: readonly string[]
  /** Signs the URLs of images and downloads; the same on every API process. */
  readonly urlSigningSecret: string
  /** A token that opens the console, besides access tokens of administrators; empty for none. */
  readonly adminToken: string
  /** The console lists requests that take longer. */
  readonly slowRequestSeconds: number
}

/** Reads the settings of the HTTP listener. */
export function readServerConfig(env: EnvReader): ServerConfig {
  env.section('HTTP listener')
  return {
    host: env.host('AUTH_API_HOST', { about: 'host to listen on', fallback: '127.0.0.1' }),
    port: env.int(['AUTH_API_PORT', 'PORT'], {
      about: 'port to listen on',
      fallback: 8081,
      max: 65_535,
    }),
    requestIdHeader: env.headerName(['AUTH_REQUEST_ID_HEADER', 'REQUEST_ID_HEADER'], {
      about: 'incoming header from which a request id is inherited',
    }),
    bodyBytesMax: env.int('MILLRACE_BODY_BYTES_MAX', {
      about: 'largest JSON body in bytes',
      fallback: 8 * 1024 * 1024,
      min: 1024,
    }),
    largeBodiesBytesMax: env.int('MILLRACE_LARGE_BODIES_BYTES_MAX', {
      about:
        'memory in bytes of one process for request bodies over 16 KiB and stored content that requests read; further requests wait',
      fallback: 256 * 1024 * 1024,
      min: 1024 * 1024,
    }),
    drainTimeoutSeconds: env.seconds('MILLRACE_DRAIN_TIMEOUT', {
      about: 'how long a stopping process waits until its open requests end',
      fallback: 30,
      isTimer: true,
    }),
    trustedProxies: readTrustedProxies(env),
    urlSigningSecret: env.required('MILLRACE_URL_SIGNING_SECRET', {
      about:
        'secret that signs the URLs of images and downloads; `millrace up` creates one if unset',
      isSecret: true,
    }),
    adminToken: readAdminToken(env),
    slowRequestSeconds: env.seconds('MILLRACE_SLOW_REQUEST', {
      about: 'duration beyond which a request is listed as slow in the console',
      fallback: 5,
    }),
  }
}

/** Reads which surfaces the process serves. */
export function readSurfaces(env: EnvReader): readonly SurfaceName[] {
  const names = env.list('MILLRACE_SURFACES', {
    about: `surfaces that the process serves, any of ${SURFACES.join(', ')}; others are not loaded`,
    fallback: SURFACES,
  })
  const wrong = names.find((name) => !SURFACES.some((surface) => surface === name))
  if (wrong !== undefined || names.length === 0) {
    const found = wrong === undefined ? 'nothing' : `"${wrong}"`
    env.problem(`MILLRACE_SURFACES may name ${SURFACES.join(', ')}, not ${found}`)
  }
  return SURFACES.filter((surface) => names.includes(surface))
}

// Shorter tokens can be guessed.
const ADMIN_TOKEN_CHARACTERS_MIN = 16

function readAdminToken(env: EnvReader): string {
  const token = env.string('MILLRACE_ADMIN_TOKEN', {
    about: `token that opens the console, besides the access tokens of administrators; at least ${ADMIN_TOKEN_CHARACTERS_MIN} characters; none if unset`,
    isSecret: true,
  })
  if (token !== '' && token.length < ADMIN_TOKEN_CHARACTERS_MIN) {
    env.problem(
      `MILLRACE_ADMIN_TOKEN must have at least ${ADMIN_TOKEN_CHARACTERS_MIN} characters: it opens every job to its holder`,
    )
  }
  return token
}

function readTrustedProxies(env: EnvReader): readonly string[] {
  const proxies = env.list('MILLRACE_TRUSTED_PROXIES', {
    about: 'addresses or networks of proxies whose X-Forwarded-* headers are trusted',
  })
  const wrong = proxies.find((proxy) => !isNetwork(proxy))
  if (wrong === undefined) return proxies
  env.problem(
    `MILLRACE_TRUSTED_PROXIES may name addresses such as 10.0.0.1 and networks such as 10.0.0.0/8, not "${wrong}"`,
  )
  return []
}

// Names of well-known ranges that the proxy library accepts.
const RANGES = ['loopback', 'linklocal', 'uniquelocal']

function isNetwork(text: string): boolean {
  if (RANGES.includes(text)) return true
  const [address = '', range, ...rest] = text.split('/')
  const bits = isIP(address) === 6 ? 128 : 32
  if (isIP(address) === 0 || rest.length > 0) return false
  if (range === undefined || isIPv4(range)) return true
  return /^\d{1,3}$/.test(range) && Number(range) >= 1 && Number(range) <= bits
}

/** Reads the settings of the log. */
export function readLogConfig(env: EnvReader): LoggerOptions {
  env.section('Logging')
  return {
    level: env.oneOf(
      ['AUTH_LOG_LEVEL', 'LOG_LEVEL'],
      ['panic', 'fatal', 'error', 'warn', 'info', 'debug'],
      { about: 'least severe level that is logged', fallback: 'info' },
    ),
    file: env.optional('AUTH_LOG_FILE', { about: 'log file; standard output if unset' }),
  }
}
