import { join } from 'node:path'

import { openTextEngine, type TextEngineOptions } from '#workers/engine/open-text-engine.ts'
import type { TextEngine } from '#workers/engine/types.ts'
import { openRuntime, type Runtime } from '#workers/runtime/runtime.ts'

import { MODELS } from './generate.ts'

/**
 * The path of a GPU, on a processor: the cache in the memory of the device that the session
 * computes on.
 */
export const ON_DEVICE = { cacheMemory: 'device' } as const

/** The cache grows as in the file. */
export const AS_EXPORTED = { asExported: true } as const

const opened: { readonly engine: TextEngine; readonly runtime: Runtime }[] = []

/** Closes the engines that a test opened; for `afterEach`. */
export async function closeEngines(): Promise<void> {
  for (const { engine, runtime } of opened.splice(0)) {
    await engine.close()
    await runtime.close()
  }
}

/** An engine on one of the tiny models; see `closeEngines`. */
export async function openEngine(
  name: string,
  changes: Partial<TextEngineOptions> = {},
): Promise<TextEngine> {
  const folder = join(MODELS, name)
  const runtime = openRuntime()
  const options = { runtime, folder, onnxFile: 'model', slots: 16, intraOpThreads: 1, ...changes }
  const engine = await openTextEngine(options)
  opened.push({ engine, runtime })
  return engine
}

/** A prompt of its own for each number. */
export function makePrompt(number: number, length: number): number[] {
  return Array.from({ length }, (_, index) => 5 + ((number * 53 + index * 17) % 300))
}
