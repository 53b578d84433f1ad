import { readFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath, pathToFileURL } from 'node:url'

import type { TierProcess } from '#test/support/fault-tiers.ts'
import { API_KEY } from '#test/support/tiers.ts'

import { openBenchTiers } from './support/service.ts'

const ROOT = join(import.meta.dirname, '..')
const WINDOW_MS = 1000
const WINDOWS = 3

/**
 * Prints the modules that run during one streamed chat completion, by process: V8's precise coverage
 * of the window in which the request is served, without those that timers run in idle windows of the
 * same length. `node deploy/bootstrap.mjs bench/request-path.ts`.
 */
const preload = pathToFileURL(join(import.meta.dirname, 'support/trace-modules.mjs')).href
const { tiers, close } = await openBenchTiers(async () => ({ NODE_OPTIONS: `--import ${preload}` }))
try {
  const api = await tiers.startApi()
  const worker = await tiers.startWorker()
  for (let round = 0; round < WINDOWS; round += 1) await stream(api)
  await sleep(WINDOW_MS)
  const processes = { api, worker }
  await Promise.all(Object.values(processes).map(takeModules))
  const idle: Record<string, Set<string>> = { api: new Set(), worker: new Set() }
  for (let window = 0; window < WINDOWS; window += 1) {
    await sleep(WINDOW_MS)
    for (const [name, tier] of Object.entries(processes)) {
      for (const file of await takeModules(tier)) idle[name]?.add(file)
    }
  }
  await stream(api)
  await sleep(WINDOW_MS)
  let total = 0
  for (const [name, tier] of Object.entries(processes)) {
    const files = (await takeModules(tier)).filter((file) => idle[name]?.has(file) !== true).sort()
    total += files.length
    console.log(`${name}: ${files.length}\n  ${files.join('\n  ')}`)
  }
  console.log(`modules on the path of one streamed chat completion: ${total}`)
} finally {
  await close()
}

async function stream({ url }: TierProcess): Promise<void> {
  const answer = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${API_KEY}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      model: 'tiny-chat',
      stream: true,
      temperature: 0,
      messages: [{ role: 'user', content: 'What is the plural of box?' }],
    }),
  })
  if (!answer.ok) throw new Error(`the request was answered with ${answer.status}`)
  await answer.text()
}

/** The files of the product that ran since the last call, relative to the repository. */
async function takeModules({ pid, logFile }: TierProcess): Promise<string[]> {
  const printed = (): string[] => readFileSync(logFile, 'utf8').match(/^modules .*$/gm) ?? []
  const before = printed().length
  process.kill(pid, 'SIGUSR2')
  while (printed().length === before) await sleep(20)
  const urls = JSON.parse((printed().at(-1) ?? '').slice('modules '.length)) as string[]
  return urls
    .filter((url) => url.startsWith('file:'))
    .map((url) => relative(ROOT, fileURLToPath(url)))
    .filter((file) => /^(api|workers|shared)\//.test(file))
}
