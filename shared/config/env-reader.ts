import { parseDurationMs } from '#shared/clock.ts'

const DAY_MS = 86_400_000
// A hundred years: later dates may not fit into a database column.
const DAYS_MAX = 36_500
// Node fires a timer of more than 2^31 ms at once.
const TIMER_DAYS_MAX = 20

// The characters of a header name (RFC 9110, section 5.1).
const HEADER_NAME = /^[\w!#$%&'*+.^`|~-]+$/
// The characters of a header value.
const HEADER_TEXT = /^[!-~]+$/
const HOST_NAME = /^[\w.:%-]+$/

/** An error that names every wrong setting. */
export class ConfigError extends Error {
  readonly problems: readonly string[]

  constructor(problems: readonly string[]) {
    super(`the configuration has ${problems.length} problem(s):\n  ${problems.join('\n  ')}`)
    this.name = 'ConfigError'
    this.problems = problems
  }
}

/** One setting as `.env.example` lists it. */
interface SettingDoc {
  readonly names: readonly string[]
  /** Spellings of Supabase's server. */
  readonly aliases: readonly string[]
  readonly fallback: string
  readonly about: string
  readonly isSecret: boolean
  readonly section: string
}

interface Common {
  /** The description in `.env.example`. */
  readonly about: string
  readonly isSecret?: boolean
}

type Names = string | readonly string[]

interface NumberOptions {
  readonly fallback: number
  readonly min?: number
  readonly max?: number
}

/**
 * Reads settings from an environment and collects their names and all problems. When a setting has
 * several spellings, the first one that is set wins. An empty value counts as unset.
 */
export class EnvReader {
  readonly settings: SettingDoc[] = []
  readonly problems: string[] = []
  readonly #env: Readonly<Record<string, string | undefined>>
  #section = ''

  constructor(env: Readonly<Record<string, string | undefined>>) {
    this.#env = env
  }

  /** Settings read from now on belong to this heading of `.env.example`. */
  section(title: string): void {
    this.#section = title
  }

  /** Adds a problem that concerns several settings. */
  problem(text: string): void {
    this.problems.push(text)
  }

  string(names: Names, options: Common & { readonly fallback?: string }): string {
    return this.#raw(names, options, options.fallback ?? '')?.value ?? options.fallback ?? ''
  }

  optional(names: Names, options: Common): string | undefined {
    return this.#raw(names, options, '')?.value
  }

  /** Like `string`, but a missing value is a problem. */
  required(names: Names, options: Common): string {
    const found = this.#raw(names, options, '')
    if (!found) this.problems.push(`${first(names)} is required (${options.about})`)
    return found?.value ?? ''
  }

  int(names: Names, options: Common & NumberOptions): number {
    const kind = { must: 'an integer', isKind: Number.isInteger, top: Number.MAX_SAFE_INTEGER }
    return this.#numeric(names, options, kind)
  }

  number(names: Names, options: Common & NumberOptions): number {
    const kind = { must: 'a number', isKind: Number.isFinite, top: Number.MAX_VALUE }
    return this.#numeric(names, options, kind)
  }

  bool(names: Names, options: Common & { readonly fallback: boolean }): boolean {
    const found = this.#raw(names, options, String(options.fallback))
    if (!found) return options.fallback
    const value = found.value.toLowerCase()
    if (['true', '1', 'yes', 'on', 't'].includes(value)) return true
    if (['false', '0', 'no', 'off', 'f'].includes(value)) return false
    this.problems.push(`${found.name} must be true or false, not "${found.value}"`)
    return options.fallback
  }

  oneOf<const T extends string>(
    names: Names,
    values: readonly T[],
    options: Common & { readonly fallback: T },
  ): T {
    const found = this.#raw(names, options, options.fallback)
    if (!found) return options.fallback
    const match = values.find((value) => value === found.value.toLowerCase())
    if (match !== undefined) return match
    this.problems.push(`${found.name} must be one of ${values.join(', ')}, not "${found.value}"`)
    return options.fallback
  }

  url(names: Names, options: Common & { readonly fallback?: string }): string {
    const found = this.#raw(names, options, options.fallback ?? '')
    if (!found) return options.fallback ?? ''
    // `localhost:9000` is a URL as well, of the scheme localhost.
    if (/^https?:\/\/[^/]/i.test(found.value) && URL.canParse(found.value)) return found.value
    this.problems.push(
      `${found.name} must be a URL that begins with http:// or https://, not "${found.value}"`,
    )
    return options.fallback ?? ''
  }

  /** A header name in lower case; empty when unset. */
  headerName(names: Names, options: Common): string {
    return this.#matching(HEADER_NAME, 'must be the name of a header', names, options).toLowerCase()
  }

  /** An IP address or host name. */
  host(names: Names, options: Common & { readonly fallback: string }): string {
    return this.#matching(HOST_NAME, 'must be an address or the name of a machine', names, options)
  }

  /** A secret that is sent in a header; masked in output. */
  token(names: Names, options: Common): string {
    const found = this.#raw(names, { ...options, isSecret: true }, '')
    if (found === undefined || HEADER_TEXT.test(found.value)) return found?.value ?? ''
    this.problems.push(
      `${found.name} must be of ASCII characters without spaces: no header could carry it`,
    )
    return ''
  }

  /** A comma-separated list; surrounding spaces and empty entries are dropped. */
  list(
    names: Names,
    options: Common & { readonly fallback?: readonly string[] },
  ): readonly string[] {
    const found = this.#raw(names, options, (options.fallback ?? []).join(','))
    if (!found) return options.fallback ?? []
    return found.value
      .split(',')
      .map((entry) => entry.trim())
      .filter((entry) => entry !== '')
  }

  /**
   * A duration in whole or fractional seconds; accepts `900`, `900s`, `15m`. `isTimer` limits it to
   * the longest delay of a timer.
   */
  seconds(
    names: Names,
    options: Common & { readonly fallback: number; readonly isTimer?: boolean },
  ): number {
    const found = this.#raw(names, options, String(options.fallback))
    if (!found) return options.fallback
    const ms = parseDurationMs(found.value)
    const daysMax = options.isTimer === true ? TIMER_DAYS_MAX : DAYS_MAX
    if (ms !== undefined && ms <= daysMax * DAY_MS) return ms / 1000
    this.problems.push(
      ms === undefined
        ? `${found.name} must be a duration such as 900, 900s or 15m, not "${found.value}"`
        : `${found.name} must be at most ${daysMax} days, not "${found.value}"`,
    )
    return options.fallback
  }

  /** Character sets separated by colons; `\:` is a literal colon. */
  colonSets(names: Names, options: Common): readonly string[] {
    const found = this.#raw(names, options, '')
    if (!found) return []
    return found.value
      .split(/(?<!\\):/)
      .map((set) => set.replaceAll('\\:', ':'))
      .filter(Boolean)
  }

  /** Spellings that are set but overridden by another spelling with another value. */
  overruledNames(): readonly { readonly name: string; readonly by: string }[] {
    return this.settings.flatMap(({ names, aliases }) => {
      const set = [...names, ...aliases].flatMap((name) => {
        const value = this.#env[name]?.trim() ?? ''
        return value === '' ? [] : [{ name, value }]
      })
      const [read, ...others] = set
      return others.flatMap(({ name, value }) =>
        read === undefined || value === read.value ? [] : [{ name, by: read.name }],
      )
    })
  }

  /** Names in the environment that have one of the prefixes but are not settings. */
  unknownNames(prefixes: readonly string[]): readonly string[] {
    const known = new Set(this.settings.flatMap(({ names, aliases }) => [...names, ...aliases]))
    return Object.keys(this.#env).filter(
      (name) => !known.has(name) && prefixes.some((prefix) => name.startsWith(prefix)),
    )
  }

  #numeric(
    names: Names,
    options: Common & NumberOptions,
    kind: { readonly must: string; readonly top: number; isKind(value: number): boolean },
  ): number {
    const found = this.#raw(names, options, String(options.fallback))
    if (!found) return options.fallback
    const value = Number(found.value)
    const { min = 0, max = kind.top } = options
    if (kind.isKind(value) && value >= min && value <= max) return value
    this.problems.push(
      `${found.name} must be ${kind.must} from ${min} to ${max}, not "${found.value}"`,
    )
    return options.fallback
  }

  #matching(
    pattern: RegExp,
    must: string,
    names: Names,
    options: Common & { readonly fallback?: string },
  ): string {
    const { fallback = '' } = options
    const found = this.#raw(names, options, fallback)
    if (!found) return fallback
    if (pattern.test(found.value)) return found.value
    this.problems.push(`${found.name} ${must}, not "${found.value}"`)
    return fallback
  }

  #raw(
    names: Names,
    options: Common,
    fallback: string,
  ): { name: string; value: string } | undefined {
    const own = typeof names === 'string' ? [names] : names
    const aliases = own.flatMap(aliasOf)
    const all = [...own, ...aliases]
    this.settings.push({
      names: own,
      aliases,
      fallback,
      about: options.about,
      isSecret: options.isSecret ?? false,
      section: this.#section,
    })
    for (const name of all) {
      const value = this.#env[name]
      if (value !== undefined && value.trim() !== '') return { name, value: value.trim() }
    }
    return undefined
  }
}

// Supabase's server reads the same settings under its former name.
function aliasOf(name: string): readonly string[] {
  return name.startsWith('AUTH_') ? [`GOTRUE_${name.slice('AUTH_'.length)}`] : []
}

function first(names: Names): string {
  return typeof names === 'string' ? names : (names[0] ?? '')
}
