import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

import sharp from 'sharp'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'

import { parseCatalogue } from '#shared/catalogue.ts'
import { type Sample, samples } from '#test/support/documents.ts'
import { findPackaged } from '#test/support/packaged.ts'
import { freshPrefix } from '#test/support/queue.ts'
import { createDatabase } from '#test/support/services.ts'
import { API_KEY, startTiers, type Tiers } from '#test/support/tiers.ts'

const run = promisify(execFile)
const ROOT = join(import.meta.dirname, '../../..')
const ADMIN_TOKEN = 'the-admin-token-of-the-samples'
const SETUP_TIMEOUT_MS = 120_000
/** Where samples reach an installation: the default port. */
const ADDRESS = /http:\/\/(localhost|127\.0\.0\.1):8081\b/g

const curl = await findPackaged('curl')
const all = samples()
const catalogues = all.filter(({ language, text }) => language === 'json' && /"kind"/.test(text))
const programs = all.filter(({ language }) => language === 'ts')
const commands = all.flatMap(curlsOf)

/** The curl commands of a sample, each with its continued lines. */
function curlsOf({ place, language, text }: Sample): readonly Sample[] {
  return [...text.matchAll(/^curl (?:.*\\\n)*.*$/gm)].map(([command]) => ({
    place,
    language,
    text: command,
  }))
}

let tiers: Tiers
let folder: string
let dropDatabase: () => Promise<void>
let image: string

beforeAll(async () => {
  const database = await createDatabase()
  dropDatabase = database.drop
  folder = await mkdtemp(join(tmpdir(), 'millrace-samples-'))
  tiers = await startTiers({
    databaseUrl: database.url,
    redisUrl: inject('redisUrl'),
    keyPrefix: freshPrefix(),
    folder,
    env: {
      MILLRACE_WORKER_MODELS: 'tiny-chat,tiny-vlm,tiny-tts',
      MILLRACE_ADMIN_TOKEN: ADMIN_TOKEN,
    },
  })
  await tiers.startWorker()
  const square = sharp({ create: { width: 64, height: 64, channels: 3, background: '#f00' } })
  image = `data:image/png;base64,${(await square.png().toBuffer()).toString('base64')}`
  await writeFile(join(folder, '.curlrc'), 'silent\nwrite-out = "\\n%{http_code}"\n')
}, SETUP_TIMEOUT_MS)

afterAll(async () => {
  await tiers?.stop()
  await dropDatabase?.()
  if (folder !== undefined) await rm(folder, { recursive: true, force: true })
})

/** The environment in which the variables that a page names are set. */
function readersEnv() {
  return {
    ...process.env,
    CURL_HOME: folder,
    URL: tiers.url,
    KEY: API_KEY,
    IMAGE: image,
    MILLRACE_API_KEY: API_KEY,
    MILLRACE_KEY: API_KEY,
    MILLRACE_ADMIN_TOKEN: ADMIN_TOKEN,
    OPENAI_BASE_URL: `${tiers.url}/v1`,
    OPENAI_API_KEY: API_KEY,
  }
}

describe('the samples of the documents', () => {
  it('exist', () => {
    expect(catalogues.length).toBeGreaterThan(5)
    expect(programs.length).toBeGreaterThan(1)
    expect(commands.length).toBeGreaterThan(5)
  })

  it.each(catalogues)('$place is an entry of models.json', ({ text }) => {
    expect(parseCatalogue({ models: [JSON.parse(text)] }).models).not.toEqual([])
  })

  it.each(programs)('$place runs', async ({ text }) => {
    const code = text.replaceAll(ADDRESS, tiers.url).replaceAll('mr-…', API_KEY)
    const args = ['--input-type=module-typescript', '--eval', code]
    const { stdout } = await run(process.execPath, args, { cwd: ROOT, env: readersEnv() })
    if (code.includes('process.stdout')) expect(stdout).toMatch(/boxes/)
  })

  it.skipIf(curl === undefined).each(commands)('$place: $text', async ({ text }) => {
    const command = text.replaceAll(ADDRESS, tiers.url)
    const { stdout } = await run('sh', ['-c', command], { cwd: folder, env: readersEnv() })
    // Samples may name a model of the reader's own, which is not here.
    expect(stdout).toMatch(/\n2\d\d$|model_not_found[\s\S]*\n404$|No such queue[\s\S]*\n404$/)
  })
})
