import { execFile } from 'node:child_process'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)

/**
 * The path of the first of these commands. When there is none and this is root on Debian, the
 * packages are installed first; test files that run at the same time wait for each other.
 * Undefined when it cannot be installed.
 */
export async function findPackaged(
  command: string,
  {
    commands = [command],
    packages = [command],
  }: { readonly commands?: readonly string[]; readonly packages?: readonly string[] } = {},
): Promise<string | undefined> {
  const present = await fromPath(commands)
  if (present !== undefined || process.getuid?.() !== 0) return present
  if ((await fromPath(['apt-get'])) === undefined) return undefined
  // biome-ignore lint/suspicious/noConsole: the progress of an installation.
  console.error(`installing ${packages.join(' ')} with apt-get …`)
  const install = `command -v ${command} || {
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends ${packages.join(' ')}
  }`
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  const lock = join(tmpdir(), 'millrace-tests-apt.lock')
  await run('flock', [lock, 'sh', '-c', install], { env }).catch(() => {
    // Whether it worked shows in whether the command exists.
  })
  return fromPath(commands)
}

async function fromPath(commands: readonly string[]): Promise<string | undefined> {
  for (const command of commands) {
    const { stdout } = await run('sh', ['-c', `command -v ${command} || true`])
    if (stdout !== '') return stdout.trim()
  }
  return undefined
}
