import { join } from 'node:path'

import { afterAll, afterEach } from 'vitest'

import { openTextEngine, type TextEngineOptions } from '#workers/engine/open-text-engine.ts'
import type { TextEngine } from '#workers/engine/types.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import { MODELS } from './generate.ts'

/** What a GPU takes, on a processor: the cache in the memory of the device that the session computes on. */
export const ON_DEVICE = { cacheMemory: 'device' } as const

/** The cache grows as in the file. */
export const AS_EXPORTED = { asExported: true } as const

const runtime = openRuntime()
const opened: TextEngine[] = []
afterEach(async () => {
  await Promise.all(opened.splice(0).map((engine) => engine.close()))
})
afterAll(() => runtime.close())

/** An engine on one of the tiny models, closed after the test. */
export async function openEngine(
  name: string,
  changes: Partial<TextEngineOptions> = {},
): Promise<TextEngine> {
  const folder = join(MODELS, name)
  const options = { runtime, folder, onnxFile: 'model', slots: 16, intraOpThreads: 1, ...changes }
  const engine = await openTextEngine(options)
  opened.push(engine)
  return engine
}

/** A prompt of its own for each number. */
export function makePrompt(number: number, length: number): number[] {
  return Array.from({ length }, (_, index) => 5 + ((number * 53 + index * 17) % 300))
}
