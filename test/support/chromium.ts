import { findPackaged } from './packaged.ts'

const COMMANDS = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable']

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
  // Without a font a page has no text.
  const packages = ['chromium', 'fonts-dejavu-core']
  const found = given || (await findPackaged('chromium', { commands: COMMANDS, packages }))
  if (found !== undefined) return found
  throw new Error(
    'The tests of the pages need Chromium: set TEST_CHROMIUM to its path, or install it (Debian: apt-get install chromium; macOS: brew install --cask chromium).',
  )
}
