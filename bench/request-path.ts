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
 * Prints the modules of which a function runs because of one streamed chat completion, by process:
 * V8's precise coverage of the window in which the request is served, without the functions that
 * also run in idle windows of the same length (timers, heartbeats, the fetch loop).
 * `node deploy/bootstrap.mjs bench/request-path.ts`.
 */
const preload = pathToFileURL(join(import.meta.dirname, 'support/trace-modules.mjs')).href
const { tiers, close } = await openBenchTiers(async () => ({ NODE_OPTIONS: `--import ${preload}` }))
try {
  const api = await tiers.startApi()
  const worker = await tiers.startWorker()
  for (let round = 0; round < WINDOWS; round += 1) await stream(api)
  await sleep(WINDOW_MS)
  const processes = { api, worker }
  await Promise.all(Object.values(processes).map(takeFunctions))
  const idle: Record<string, Set<string>> = { api: new Set(), worker: new Set() }
  for (let window = 0; window < WINDOWS; window += 1) {
    await sleep(WINDOW_MS)
    for (const [name, tier] of Object.entries(processes)) {
      for (const place of (await takeFunctions(tier)).keys()) idle[name]?.add(place)
    }
  }
  await stream(api)
  await sleep(WINDOW_MS)
  const all = new Set<string>()
  for (const [name, tier] of Object.entries(processes)) {
    const own = [...(await takeFunctions(tier))].filter(
      ([place]) => idle[name]?.has(place) !== true,
    )
    const files = [...new Set(own.map(([, file]) => file))].sort()
    for (const file of files) all.add(file)
    console.log(`${name}: ${files.length}\n  ${files.join('\n  ')}`)
  }
  console.log(`modules on the path of one streamed chat completion: ${all.size}`)
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

/** The product's functions that ran since the last call: `file:offset` → file. */
async function takeFunctions({ pid, logFile }: TierProcess): Promise<Map<string, string>> {
  const printed = (): string[] => readFileSync(logFile, 'utf8').match(/^modules .*(?=\n)/gm) ?? []
  const before = printed().length
  process.kill(pid, 'SIGUSR2')
  while (printed().length === before) await sleep(20)
  const text = (printed().at(-1) ?? '').slice('modules '.length)
  const traced = JSON.parse(text) as [url: string, places: number[]][]
  return new Map(
    traced
      .map(([url, places]) => [relative(ROOT, fileURLToPath(url)), places] as const)
      .flatMap(([file, places]) => places.map((place) => [`${file}:${place}`, file] as const)),
  )
}
