import { execFile } from 'node:child_process'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

const COMMANDS = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable']
/** Two test files may find at the same time that there is none; a text needs a font. */
const INSTALL = `command -v chromium || {
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core
}`
const run = promisify(execFile)

/** Time for starting a stack with a browser, with an installation before it. */
export const BROWSER_TIMEOUT_MS = 600_000

/** Time for one test of a page: a browser beside a whole stack is slow on two cores. */
export const PATIENCE_MS = 240_000

/**
 * The Chromium of this machine: that of TEST_CHROMIUM, one of the PATH, else one that the system's
 * package manager installs when this is root, as for Redis. Throws one sentence otherwise.
 */
export async function findChromium(): Promise<string> {
  const given = process.env.TEST_CHROMIUM ?? ''
  const found = given === '' ? ((await fromPath()) ?? (await fromPackages())) : given
  if (found !== undefined) return found
  throw new Error(
    'The tests of the pages need Chromium: set TEST_CHROMIUM to its path, or install it (Debian: apt-get install chromium; macOS: brew install --cask chromium).',
  )
}

async function fromPath(): Promise<string | undefined> {
  for (const command of COMMANDS) {
    const { stdout } = await run('sh', ['-c', `command -v ${command} || true`])
    if (stdout !== '') return stdout.trim()
  }
  return undefined
}

async function fromPackages(): Promise<string | undefined> {
  const { stdout } = await run('sh', ['-c', 'command -v apt-get || true'])
  if (process.getuid?.() !== 0 || stdout === '') return undefined
  // biome-ignore lint/suspicious/noConsole: an installation takes a minute, and a person waits for it.
  console.error('installing chromium with apt-get …')
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  await run('flock', [join(tmpdir(), 'millrace-tests-apt.lock'), 'sh', '-c', INSTALL], {
    env,
  }).catch(() => {
    // Whether it worked shows in whether it is there.
  })
  return fromPath()
}
