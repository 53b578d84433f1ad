import { parseArgs } from 'node:util'

/** One way to call a command: its first word and its operands, if it has any. */
interface Form {
  readonly words: string
  readonly about: string
  readonly options?: readonly OptionName[]
}

type OptionName = keyof typeof OPTIONS

// The placeholder of the option's value; undefined for a switch.
const OPTIONS = {
  name: 'text',
  scopes: 'scope,scope',
  organization: 'id',
  file: 'ONNX file',
  role: 'role',
  password: 'password',
  from: 'URL',
  schema: 'name',
  filter: 'text',
  page: 'number',
  model: 'name',
  suffix: 'text',
  validation: 'JSON lines',
  epochs: 'number',
  url: 'URL',
  out: 'folder',
  weights: 'fp32|fp16|int8|int4',
  example: undefined,
  merged: undefined,
} as const satisfies Readonly<Record<string, string | undefined>>

/** Every command with its forms. */
const FORMS: Readonly<Record<string, readonly Form[]>> = {
  up: [{ words: '', about: 'start everything on this machine' }],
  api: [{ words: '', about: 'start an API process' }],
  worker: [{ words: '', about: 'start a worker process' }],
  migrate: [{ words: '', about: 'apply the database migrations' }],
  keys: [
    {
      words: 'create',
      about: 'make an API key and show it, once',
      options: ['name', 'scopes', 'organization'],
    },
    { words: 'list', about: 'list the API keys', options: ['organization'] },
    { words: 'revoke <id>', about: 'revoke an API key', options: ['organization'] },
  ],
  users: [
    { words: 'list', about: 'list the users, fifty a page', options: ['filter', 'page'] },
    {
      words: 'create <email>',
      about: 'make a user; without --password it is random, with - read from standard input',
      options: ['role', 'password'],
    },
    { words: 'role <user> <role>', about: 'change the role of a user: an id or an address' },
    { words: 'delete <user>', about: 'delete a user' },
    {
      words: 'import',
      about:
        "copy the users of Supabase's server; --from - reads its database URL from standard input",
      options: ['from', 'schema'],
    },
  ],
  models: [
    { words: 'list', about: 'list the catalogue' },
    { words: 'verify', about: 'check the files of every model' },
    {
      words: 'pull <repository>',
      about: 'fetch a model of the hub, or one of the catalogue',
      options: ['file'],
    },
    {
      words: 'convert <checkpoint>',
      about: 'make an ONNX model of safetensors of the hub or a folder; int8 unless --weights says',
      options: ['out', 'weights'],
    },
    {
      words: 'export <model> <folder>',
      about: 'write the adapter of a tuned model, or with --merged the whole model',
      options: ['merged'],
    },
  ],
  'fine-tune': [
    {
      words: '<file>',
      about: 'train a model on a file of examples, and follow the job',
      options: ['model', 'suffix', 'validation', 'epochs', 'url'],
    },
  ],
  'dead-letters': [
    { words: 'list', about: 'list the jobs that kept killing their workers' },
    { words: 'retry <job>', about: 'run such a job again, and wait for its end' },
  ],
  init: [
    { words: 'compose', about: 'write docker-compose.yml and .env with new secrets' },
    { words: 'systemd', about: 'write systemd units and their settings with new secrets' },
  ],
  config: [
    { words: '', about: 'show the settings in force, or all with --example', options: ['example'] },
  ],
  doctor: [{ words: '', about: 'check the requirements of this installation' }],
}

/** Whether there is a command of this name. */
export function isCommand(name: string): boolean {
  return Object.hasOwn(FORMS, name)
}

/** The usage of one command or of all. */
export function usage(name?: string): string {
  const calls = Object.entries(FORMS)
    .filter(([command]) => name === undefined || command === name)
    .flatMap(([command, forms]) =>
      forms.map((form) => [
        `${command} ${form.words}`.trim() + (name === undefined ? '' : flagsOf(form)),
        form.about,
      ]),
    )
  const width = Math.max(...calls.map(([call = '']) => call.length))
  const lines = calls.map(([call = '', about]) => `  ${call.padEnd(width)}  ${about}`)
  const more =
    name === undefined
      ? '\n\n`millrace help <command>` prints its options, `millrace --version` the version.'
      : ''
  return `millrace <command>\n\n${lines.join('\n')}${more}`
}

/**
 * The arguments of a command, or `undefined` when help is requested. Throws a `UsageError` for
 * arguments that the command would ignore.
 */
export function parseCommandLine(name: string, rest: readonly string[]): Arguments | undefined {
  const { values, positionals } = parse(name, rest)
  if (values.help !== undefined) return undefined
  const form = findForm(name, positionals)
  const allowed = form.words.split(' ').filter(Boolean).length
  const tooMuch = positionals[allowed]
  if (tooMuch !== undefined) throw misuse(name, `"${tooMuch}" means nothing here`)
  const options: Record<string, string> = {}
  for (const [option, value] of Object.entries(values)) {
    const isTaken = form.options?.some((known) => known === option) ?? false
    const first = form.words.startsWith('<') ? '' : form.words.split(' ')[0]
    if (!isTaken) throw misuse(name, `--${option} means nothing for ${`${name} ${first}`.trim()}`)
    options[option] = String(value)
  }
  return { positionals, options }
}

function parse(name: string, rest: readonly string[]) {
  const options = Object.fromEntries(
    Object.entries(OPTIONS).map(([option, value]) => [
      option,
      { type: value === undefined ? ('boolean' as const) : ('string' as const) },
    ]),
  )
  try {
    return parseArgs({
      args: [...rest],
      allowPositionals: true,
      options: { ...options, help: { type: 'boolean', short: 'h' } },
    })
  } catch (error) {
    // Only the first sentence states the error; the others suggest Node's own syntax.
    const [what = ''] = (error as Error).message.split(/\. |\n/)
    throw misuse(name, what)
  }
}

function findForm(name: string, [word = '']: readonly string[]): Form {
  const forms = FORMS[name] ?? []
  const found = forms.find(
    ({ words }) => words === '' || words.startsWith('<') || words.split(' ')[0] === word,
  )
  if (found !== undefined) return found
  const wanted = forms.map(({ words }) => words.split(' ')[0])
  throw misuse(name, `${name}: ${wanted.slice(0, -1).join(', ')} or ${wanted.at(-1)}`)
}

function flagsOf({ options = [] }: Form): string {
  const flags = options.map((option) => {
    const value = OPTIONS[option]
    return value === undefined ? ` [--${option}]` : ` [--${option} <${value}>]`
  })
  return flags.join('')
}

function misuse(name: string, message: string): UsageError {
  return new UsageError(`${message}\n\n${usage(name)}`)
}

/** The arguments of a command. */
export interface Arguments {
  readonly positionals: readonly string[]
  readonly options: Readonly<Record<string, string | undefined>>
}

/** A command line that cannot be understood; ends the process with status 2. */
export class UsageError extends Error {
  constructor(message: string) {
    super(message)
    this.name = 'UsageError'
  }
}
