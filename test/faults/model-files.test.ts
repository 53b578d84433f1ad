import { spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, statSync, truncateSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Readable } from 'node:stream'

import { describe, expect } from 'vitest'

import { parseCatalogue } from '#shared/catalogue.ts'
import { defined } from '#shared/json.ts'
import { createLogger } from '#shared/logger.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import { report } from '#test/support/fault-report.ts'
import { it } from '#test/support/services.ts'
import { generate } from '#test/unit/workers/engine/generate.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { ensureModel } from '#workers/models/fetcher.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

const SHIPPED = join(import.meta.dirname, '../../models/tiny-chat')
const HUB = { enabled: false, endpoint: '', token: '' }

describe("R12: a model's files", () => {
  it('are truncated while it serves, and it continues', async ({ folder }) => {
    const copy = join(folder, 'tiny-chat')
    cpSync(SHIPPED, copy, { recursive: true })
    const runtime = openRuntime()
    const engine = await openTextEngine({ runtime, folder: copy, slots: 2, intraOpThreads: 1 })
    const before = await generate(engine, { maxNewTokens: 30, cacheScope: 'a' })
    const file = join(copy, 'onnx/model_quantized.onnx')
    truncateSync(file, statSync(file).size - 1000)
    const damaged = await ensureModel(modelAt(copy), optionsFor(folder)).catch((e: unknown) => e)
    const after = await generate(engine, { maxNewTokens: 30, cacheScope: 'b' })
    await engine.close()
    await runtime.close()
    report('R12', {
      'damaged file': (damaged as { code?: string }).code ?? 'taken',
      'loaded model goes on': String(after.tokenIds.join() === before.tokenIds.join()),
    })
    expect(damaged).toMatchObject({ code: 'model_damaged' })
    expect(after.tokenIds).toEqual(before.tokenIds)
  })

  it('are refused by a full disk, which keeps nothing of them', async ({ folder, skip }) => {
    const outcome = await fetchOntoFullDisk(folder)
    if (outcome === undefined) return skip('no small file system on this machine')
    report('R12 (full disk)', { outcome })
    expect(outcome).toBe('refused (ENOSPC)')
  })
})

const modelAt = (source: string) =>
  defined(parseCatalogue({ models: [{ id: 'm', kind: 'completion', source }] }).models[0])

const optionsFor = (cacheDir: string) => ({
  cacheDir,
  hub: HUB as never,
  log: createLogger({ level: 'silent' }),
  storage: openDirectoryStore(join(cacheDir, 'store')),
})

/** Fetches a model of 3 MB into a file system of 1 MB; only root may make one. */
async function fetchOntoFullDisk(folder: string): Promise<string | undefined> {
  const small = join(folder, 'small')
  mkdirSync(small)
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', small])
  if (mounted.status !== 0) return undefined
  try {
    const options = { ...optionsFor(folder), cacheDir: small }
    for (const name of ['config.json', 'tokenizer.json', 'onnx/model_quantized.onnx']) {
      await options.storage.put(`m/${name}`, Readable.from([await readFile(join(SHIPPED, name))]))
    }
    const outcome = await ensureModel(modelAt('s3:m'), options).then(
      () => 'taken',
      (error: NodeJS.ErrnoException) => `refused (${error.code})`,
    )
    const isThere = statSync(join(small, 'objects/m/onnx/model_quantized.onnx'), {
      throwIfNoEntry: false,
    })
    return isThere === undefined ? outcome : 'taken'
  } finally {
    spawnSync('umount', [small])
  }
}
