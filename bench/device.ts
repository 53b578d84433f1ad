import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'

import { DeviceCache } from '#workers/engine/device/device-cache.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import type { TextEngine } from '#workers/engine/types.ts'
import { openRuntime, type Runtime } from '#workers/runtime/runtime.ts'
import type { ExecutionProvider } from '#workers/runtime/session-options.ts'

import type { Figure } from './figure.ts'
import { runGreedy } from './greedy.ts'
import { alternate } from './rounds.ts'

/** Half precision, which the attention of the CUDA provider asks for. */
const HALF = '.data/bench/smollm2-half'
const STREAMS = 16
const TOKENS = 128
const FIRST_WORD = 3 // the tokens before it end a text
const COPIED_MEBIBYTES = 256
const PASSES_OF_COPY = 4 // a slice and a padding, each of which reads and writes

/**
 * 16 texts in the engine with the cache in the device's memory, against the same with the cache in
 * the machine's. On a GPU that is what passes the bus at every step; on a processor both are the
 * same memory, and the figure says what the way over the device's allocator costs.
 */
export async function benchDevice(): Promise<readonly Figure[]> {
  const runtime = openRuntime()
  try {
    if (await hasGpu(runtime)) {
      return existsSync(HALF) ? [await benchModel(runtime, HALF, 'cuda')] : []
    }
    const folders = ['models/tiny-chat', 'models/tiny-chat/growing']
    const figures: Figure[] = []
    for (const folder of folders) figures.push(await benchModel(runtime, folder, 'cpu'))
    return figures
  } finally {
    await runtime.close()
  }
}

/** Whether the library, the driver and a device are there. */
async function hasGpu(runtime: Runtime): Promise<boolean> {
  const file = 'models/tiny-embed/onnx/model.onnx'
  try {
    const session = await runtime.load(file, { executionProvider: 'cuda' })
    await session.close()
    return true
  } catch {
    return false
  }
}

async function benchModel(
  runtime: Runtime,
  folder: string,
  executionProvider: ExecutionProvider,
): Promise<Figure> {
  const options = { runtime, folder, slots: STREAMS, executionProvider, maxContextTokens: 512 }
  const device = await openTextEngine({ ...options, cacheMemory: 'device' })
  const host = await openTextEngine({ ...options, cacheMemory: 'host' })
  try {
    assert.deepEqual(await runTexts(device), await runTexts(host), 'the place changed a text')
    const found = await alternate(
      () => measureSpeed(device),
      () => measureSpeed(host),
    )
    if (executionProvider === 'cuda') await reportFloor(runtime, folder, found.ours, device)
    const name = `${STREAMS} streams of ${folder} (${executionProvider}), cache on the device ÷ in the machine's memory`
    return { name, unit: 'tokens/s', ...found, target: { atLeast: 0.95 } }
  } finally {
    await device.close()
    await host.close()
  }
}

function runTexts(engine: TextEngine): Promise<number[][]> {
  const scope = randomUUID()
  const texts = Array.from({ length: STREAMS }, (_, stream) => {
    const promptTokenIds = [500 + stream, 600, 700, 800]
    const request = { promptTokenIds, maxNewTokens: TOKENS, cacheScope: `${scope}-${stream}` }
    return runGreedy(engine, request, FIRST_WORD)
  })
  return Promise.all(texts)
}

async function measureSpeed(engine: TextEngine): Promise<number> {
  const startedAt = performance.now()
  await runTexts(engine)
  return (STREAMS * TOKENS * 1000) / (performance.now() - startedAt)
}

/** Prints how busy the GPU was and how far a step is from reading the weights once. */
async function reportFloor(
  runtime: Runtime,
  folder: string,
  tokensPerSecond: number,
  engine: TextEngine,
): Promise<void> {
  const file = join(folder, 'onnx/model_fp16.onnx')
  const bytesPerSecond = await measureBandwidth(runtime, file)
  const { size } = await stat(file)
  const floor = (STREAMS * bytesPerSecond) / size
  const running = runTexts(engine)
  const query = ['--query-gpu=utilization.gpu', '--format=csv,noheader,nounits']
  const { stdout } = await promisify(execFile)('nvidia-smi', query)
  await running
  console.log(
    `${folder}: ${tokensPerSecond.toFixed(0)} tokens/s; the weights alone, ${(size / 1e6).toFixed(0)} MB at ` +
      `${(bytesPerSecond / 1e9).toFixed(0)} GB/s, allow ${floor.toFixed(0)}: ` +
      `${((100 * tokensPerSecond) / floor).toFixed(0)} %; utilization ${stdout.trim()} %`,
  )
}

/** Bytes per second that a large copy on the device reads and writes. */
async function measureBandwidth(runtime: Runtime, file: string): Promise<number> {
  const session = await runtime.load(file, { executionProvider: 'cuda' })
  const length = (COPIED_MEBIBYTES * 2 ** 20) / 256
  const pair = { past: '', present: '', type: 'float16', numHeads: 1, headDim: 128 } as const
  const device = await DeviceCache.open(runtime, session, [pair])
  const [source, target] = [device.allocate(1, length), device.allocate(1, length)]
  const piece = { row: 0, from: 0, to: length, before: 0, after: 0 }
  let fastest = Infinity
  for (let round = 0; round < 10; round += 1) {
    const startedAt = performance.now()
    await device.copy(source, piece, target)
    fastest = Math.min(fastest, performance.now() - startedAt)
  }
  for (const tensor of [...source, ...target]) tensor.dispose()
  await device.close()
  await session.close()
  return (PASSES_OF_COPY * COPIED_MEBIBYTES * 2 ** 20 * 1000) / fastest
}
