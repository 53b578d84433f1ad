import { expect, vi } from 'vitest'

import { users } from '#launcher/commands/users.ts'
import { it } from '#test/support/services.ts'

import { envOf, runCommand } from './installation.ts'

const settings = (databaseUrl: string): Record<string, string> => ({
  DATABASE_URL: databaseUrl,
  AUTH_SITE_URL: 'http://localhost',
  AUTH_API_EXTERNAL_URL: 'http://localhost',
  AUTH_JWT_SECRET: 'long-enough-for-the-tests',
  MILLRACE_URL_SIGNING_SECRET: 'long-enough-for-the-tests',
  MILLRACE_ARGON2_MEMORY_KIB: '64',
})

/** Runs the command in this process; returns what it printed. */
async function run(
  databaseUrl: string,
  positionals: readonly string[],
  options: Readonly<Record<string, string>> = {},
): Promise<string> {
  const lines: string[] = []
  const print = vi.spyOn(console, 'log').mockImplementation((line) => void lines.push(line))
  try {
    await users(settings(databaseUrl), { positionals, options })
  } finally {
    print.mockRestore()
  }
  return lines.join('\n')
}

it('makes, lists, promotes and deletes users', async ({ databaseUrl, database }) => {
  const made = await run(databaseUrl, ['create', 'Admin@Example.com'], { role: 'service_role' })
  expect(made).toMatch(/service_role {2}admin@example\.com$/m)
  expect(made).toMatch(/^password: [\w-]{24}$/m)
  expect(made).toContain('administers')
  const member = ['create', 'member@example.com']
  const quiet = await run(databaseUrl, member, { password: 'correct horse' })
  expect(quiet).not.toContain('password')
  await expect(run(databaseUrl, member)).rejects.toThrow('already been registered')

  await run(databaseUrl, ['role', 'member@example.com', 'editor'])
  const { rows } = await database.pool.query(
    'select email, role, aud, email_confirmed_at is not null as confirmed from users order by email',
  )
  expect(rows).toEqual([
    { email: 'admin@example.com', role: 'service_role', aud: 'authenticated', confirmed: true },
    { email: 'member@example.com', role: 'editor', aud: 'authenticated', confirmed: true },
  ])
  const log = await database.pool.query(
    "select payload ->> 'action' as action, payload ->> 'actor_username' as actor from audit_log_entries order by created_at",
  )
  expect(log.rows.map((row) => `${row.actor}: ${row.action}`)).toEqual([
    'command line: user_signedup',
    'command line: user_signedup',
    'command line: user_modified',
  ])

  const listed = await run(databaseUrl, ['list'], { filter: 'member' })
  expect(listed).toMatch(/^\S{36} {2}editor {2}confirmed {2}member@example\.com$/)
  expect(await run(databaseUrl, ['delete', 'member@example.com'])).toContain('is deleted')
  expect(await run(databaseUrl, ['list'])).not.toContain('member@example.com')
})

it.for([
  [[], 'list, create, role, delete or import'],
  [['create'], 'needs an email address'],
  [['create', 'x'], 'invalid format'],
  [['role', 'nobody@example.com'], 'there is no user nobody@example.com'],
  [['delete', 'nobody@example.com'], 'there is no user nobody@example.com'],
] as const)('refuses %j with one sentence', async ([args, message], { databaseUrl }) => {
  await expect(run(databaseUrl, args)).rejects.toMatchObject({
    name: 'UsageError',
    message: expect.stringContaining(message),
  })
})

it('is a command like the others', ({ folder, databaseUrl }) => {
  const env = envOf(folder, settings(databaseUrl))
  const { status, stdout, stderr } = runCommand(
    ['users', 'create', 'a@example.com', '--password', 'correct horse', '--role', 'editor'],
    env,
  )
  expect(stdout, stderr).toMatch(/editor {2}a@example\.com/)
  expect(status).toBe(0)
})
