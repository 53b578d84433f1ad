import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import type { FittedAdapter } from '#workers/adapters/fit-adapter.ts'
import { readPeftAdapter, writePeftAdapter } from '#workers/adapters/peft-files.ts'
import { findLinearModules } from '#workers/adapters/target-modules.ts'
import { findDecoderFile } from '#workers/engine/model-files.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import type { TextEngine } from '#workers/engine/types.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import { readModelFile } from '#workers/graph/read-model.ts'
import { openRuntime, type Runtime } from '#workers/runtime/runtime.ts'

import type { Figure } from './figure.ts'
import { runGreedy } from './greedy.ts'
import { alternate } from './rounds.ts'

/** bench/make-decoder.py makes the large one. */
const FOLDERS = ['models/tiny-chat', '.data/bench/smollm2-shape'] as const
const ROWS = 16
const ADAPTERS = 8
const RANK = 16
const LOAD_MS_MAX = 100
const CONTEXT = 48 // tokens
const TOKENS = 32
const FIRST_WORD = 3 // the tokens before it end a text

/**
 * Decoding of sixteen rows with eight adapters ÷ the base model, and how long an adapter takes from
 * its file to the first token that it serves, beyond that token itself.
 */
export async function benchAdapters(): Promise<readonly Figure[]> {
  const runtime = openRuntime()
  const files = await mkdtemp(join(tmpdir(), 'millrace-bench-adapters-'))
  try {
    const figures: Figure[] = []
    for (const folder of FOLDERS) {
      if (existsSync(folder)) figures.push(...(await measureFolder(runtime, folder, files)))
    }
    return figures
  } finally {
    await runtime.close()
    await rm(files, { recursive: true })
  }
}

async function measureFolder(runtime: Runtime, folder: string, files: string): Promise<Figure[]> {
  const engine = await openTextEngine({ runtime, folder, slots: ROWS })
  try {
    const places = await writeAdapters(folder, join(files, randomUUID()))
    const load = async (place: string): Promise<FittedAdapter> => {
      const limits = { rankMax: RANK, bytesMax: 1 << 30 }
      return engine.fitAdapter(await readPeftAdapter(place, limits))
    }
    const adapters: FittedAdapter[] = []
    for (const place of places) adapters.push(await load(place))
    const decode = await alternate(
      () => measureRate(engine, adapters),
      () => measureRate(engine, []),
    )
    const first = async (adapter: FittedAdapter): Promise<number> => {
      const startedAt = performance.now()
      await runGreedy(engine, { ...textOf(0), maxNewTokens: 1, adapter }, FIRST_WORD)
      return performance.now() - startedAt
    }
    const loading = await alternate(
      async () => {
        const startedAt = performance.now()
        const adapter = await load(places[0] ?? '')
        const loadedMs = performance.now() - startedAt
        const newMs = await first(adapter)
        return loadedMs + newMs - (await first(adapter))
      },
      async () => LOAD_MS_MAX,
    )
    const about = `${folder}, rank ${RANK}`
    return [
      {
        name: `decode of ${ROWS} rows with ${ADAPTERS} adapters ÷ the base model, ${about}`,
        unit: 'tokens/s',
        ...decode,
        target: { atLeast: 0.85 },
      },
      {
        name: `load of an adapter ÷ ${LOAD_MS_MAX} ms, ${about}`,
        unit: 'ms',
        ...loading,
        target: { atMost: 1 },
      },
    ]
  } finally {
    await engine.close()
  }
}

function textOf(row: number) {
  const promptTokenIds = Array.from({ length: CONTEXT }, (_, at) => 3 + ((at * 7 + row) % 500))
  return { promptTokenIds, maxNewTokens: TOKENS, cacheScope: randomUUID() }
}

/** Tokens per second of all rows, once all of them decode. */
async function measureRate(
  engine: TextEngine,
  adapters: readonly FittedAdapter[],
): Promise<number> {
  const times: number[] = []
  const texts = Array.from({ length: ROWS }, (_, row) => {
    const adapter = adapters[row % adapters.length]
    const onToken = row === 0 ? () => void times.push(performance.now()) : () => {}
    return runGreedy(engine, { ...textOf(row), ...(adapter && { adapter }), onToken }, FIRST_WORD)
  })
  await Promise.all(texts)
  const settled = times.slice(-Math.floor(TOKENS / 2))
  return (ROWS * 1000 * (settled.length - 1)) / ((settled.at(-1) ?? 0) - (settled[0] ?? 0))
}

/** Adapters of all linear layers; speed does not depend on their values. */
async function writeAdapters(folder: string, target: string): Promise<string[]> {
  const { graph } = await readModelFile(await findDecoderFile(folder))
  const modules = findLinearModules(new GraphView(graph)).filter(({ path }) => path !== 'lm_head')
  assert(modules.length > 0, 'the decoder has no linear layers')
  const random = (length: number): Float32Array =>
    Float32Array.from({ length }, () => (Math.random() - 0.5) / 100)
  const places: string[] = []
  for (let number = 0; number < ADAPTERS; number += 1) {
    const layers = modules.map(({ path, inSize, outSize }) => {
      const [a, b] = [random(RANK * inSize), random(outSize * RANK)]
      return [path, { inSize, outSize, a, b }] as const
    })
    const place = join(target, String(number))
    await mkdir(place, { recursive: true })
    const written = writePeftAdapter({ rank: RANK, alpha: RANK, modules: new Map(layers) })
    for (const [name, bytes] of Object.entries(written)) {
      await writeFile(join(place, name), bytes)
    }
    places.push(place)
  }
  return places
}
