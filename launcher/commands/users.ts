import { randomBytes } from 'node:crypto'
import { text } from 'node:stream/consumers'

import { Client } from 'pg'

import { adminCreateUser } from '#api/auth/admin/create-user.ts'
import { adminUpdateUser } from '#api/auth/admin/update-user.ts'
import { adminDeleteUser, adminListUsers } from '#api/auth/admin/users.ts'
import type { AdminRequest, Answer } from '#api/auth/context.ts'
import { type AuthServices, createAuthServices } from '#api/auth/services.ts'
import { parseEmail } from '#api/auth/users/contact.ts'
import { findAnyUserById, findUserByContact } from '#api/auth/users/user-store.ts'
import { endMemberships } from '#api/organizations/account-deletion.ts'
import { type Arguments, UsageError } from '#launcher/command-line.ts'
import { openReachableDatabase } from '#launcher/reach.ts'
import { systemClock } from '#shared/clock.ts'
import { type Config, type Env, loadConfig } from '#shared/config/config.ts'
import type { Database } from '#shared/db/client.ts'
import { authTables } from '#shared/db/schema/auth.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { ServiceError } from '#shared/errors.ts'
import { createLogger } from '#shared/logger.ts'

import { importUsers } from './users-import-store.ts'

type Action = (services: AuthServices, args: Arguments) => Promise<void>

const ACTIONS: Readonly<Record<string, Action>> = {
  async list(services, { options }) {
    const { filter, page } = options
    const query = { per_page: '50', ...(filter && { filter }), ...(page && { page }) }
    const answer = await adminListUsers(services, requestOf(services), query)
    for (const user of (bodyOf(answer) as { users: PresentedUser[] }).users) {
      const contact = user.email || user.phone || 'anonymous'
      console.log(`${user.id}  ${user.role || '-'}  ${stateOf(user)}  ${contact}`)
    }
  },
  async create(services, args) {
    const email = operand(args, 1, 'users create needs an email address')
    const { role } = args.options
    const isGiven = args.options.password !== undefined
    const password = isGiven ? await givenPassword(args) : randomBytes(18).toString('base64url')
    const body = { email, password, email_confirm: true, ...(role && { role }) }
    const answer = await adminCreateUser(services, requestOf(services), body, {})
    const user = bodyOf(answer) as PresentedUser
    console.log(`${user.id}  ${user.role || '-'}  ${user.email}`)
    if (!isGiven) console.log(`password: ${password}`)
    noteRole(services, user.role)
  },
  async role(services, args) {
    const userId = await findUserId(services, operand(args, 1, 'users role needs a user'))
    const role = operand(args, 2, 'users role needs the new role')
    await adminUpdateUser(services, requestOf(services), { role }, { user_id: userId })
    console.log(`${userId} has the role ${role} from the next access token on`)
    noteRole(services, role)
  },
  async delete(services, args) {
    const userId = await findUserId(services, operand(args, 1, 'users delete needs a user'))
    await adminDeleteUser(services, requestOf(services), {}, { user_id: userId })
    console.log(`${userId} is deleted`)
  },
}

/** Copies the users of another server, or of another schema of this database. */
async function runImport(config: Config, database: Database, args: Arguments): Promise<void> {
  const { schema = 'auth' } = args.options
  const from = args.options.from === undefined ? config.database.url : await givenUrl(args)
  const source = new Client({ connectionString: from, connectionTimeoutMillis: 10_000 })
  await source.connect().catch((error: Error) => {
    throw new UsageError(`the database of --from cannot be reached: ${error.message}`)
  })
  const target = await database.pool.connect()
  try {
    const { tablePrefix } = config.database
    const now = new Date(systemClock.now())
    const report = await importUsers({ source, schema, target, tablePrefix, now })
    for (const [table, count] of Object.entries(report.added))
      console.log(`${table}: ${count} added`)
    for (const line of report.skipped) console.log(`left out: ${line}`)
    const more = report.skippedCount - report.skipped.length
    if (more > 0) console.log(`left out: ${more} more`)
  } finally {
    target.release()
    await source.end()
  }
}

async function givenUrl({ options }: Arguments): Promise<string> {
  const given = options.from ?? ''
  const url = given === '-' ? (await text(process.stdin)).trim() : given
  if (!/^postgres(ql)?:\/\//.test(url)) {
    throw new UsageError('--from must be a URL that begins with postgres://')
  }
  return url
}

/**
 * `millrace users list|create|role|delete|import`: manages users by the rules of the user server,
 * including its audit log. The first administrator is created here: database access already implies
 * these rights.
 */
export async function users(env: Env, args: Arguments): Promise<void> {
  const [name] = args.positionals
  const action = Object.entries(ACTIONS).find(([known]) => known === name)?.[1]
  const isImport = name === 'import'
  if (action === undefined && !isImport) {
    throw new UsageError('users: list, create, role, delete or import')
  }
  const { config } = loadConfig(env)
  const database = await openReachableDatabase(config.database)
  try {
    if (isImport) await runImport(config, database, args)
    else await action?.(await openUsers(config, database), args)
  } catch (error) {
    // Errors of the user server are printed for the operator.
    if (error instanceof ServiceError && error.status < 500) throw new UsageError(error.message)
    throw error
  } finally {
    await database.close()
  }
}

interface PresentedUser {
  readonly id: string
  readonly email: string
  readonly phone: string
  readonly role: string
  readonly confirmed_at?: string
  readonly banned_until?: string
  readonly deleted_at?: string
}

function stateOf(user: PresentedUser): string {
  if (user.deleted_at !== undefined) return 'deleted'
  const isBanned =
    user.banned_until !== undefined && Date.parse(user.banned_until) > systemClock.now()
  if (isBanned) return 'banned'
  return user.confirmed_at === undefined ? 'unconfirmed' : 'confirmed'
}

function noteRole({ config }: AuthServices, role: string): void {
  if (config.jwt.adminRoles.includes(role)) console.log('this role administers the user server')
}

function operand({ positionals }: Arguments, index: number, message: string): string {
  const value = positionals[index]
  if (value === undefined || value === '') throw new UsageError(message)
  return value
}

// `-` reads it from standard input, because arguments are visible in the list of processes.
async function givenPassword({ options }: Arguments): Promise<string> {
  const given = options.password ?? ''
  const password = given === '-' ? (await text(process.stdin)).replace(/\r?\n$/, '') : given
  if (password === '') throw new UsageError('the password is empty')
  return password
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

async function findUserId(services: AuthServices, named: string): Promise<string> {
  const { store } = services
  const user = UUID.test(named)
    ? await findAnyUserById(store, named)
    : await findUserByContact(store, { kind: 'email', email: parseEmail(named) })
  if (user === undefined) throw new UsageError(`there is no user ${named}`)
  return user.id
}

function bodyOf(answer: Answer): unknown {
  return answer.kind === 'json' ? answer.body : undefined
}

/** The command line as the administrator that the audit log records. */
function requestOf({ config }: AuthServices): AdminRequest {
  return {
    ip: '',
    network: '',
    userAgent: 'millrace users',
    redirectTo: config.site.url,
    audience: config.jwt.audience,
    externalUrl: config.site.externalUrl,
    browser: { secret: undefined, isNavigation: false, host: '' },
    caller: { kind: 'admin', role: 'command line', claims: {} },
  }
}

// A command needs only the database, so these parts are not used.
function openUsers(config: Config, database: Database): Promise<AuthServices> {
  const absent = async (): Promise<never> => {
    throw new Error('the command line does without this service')
  }
  const { tablePrefix } = config.database
  return createAuthServices({
    db: database.db,
    tables: authTables(tablePrefix),
    onUsersEnded: (tx, ids) => endMemberships(tx, organizationTables(tablePrefix), ids),
    redis: { eval: absent },
    redisKeyPrefix: '',
    config: config.auth,
    clock: systemClock,
    log: createLogger({ level: 'error' }),
    mailer: { send: absent },
    sms: { send: absent, requireGateway: () => undefined, testOtp: () => undefined },
    captcha: { verify: absent },
    providers: {
      get: () => {
        throw new Error('the command line does without providers')
      },
      enabledIds: () => [],
      idTokenIssuer: () => undefined,
      allIds: [],
    },
    version: '',
  })
}
