import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { generate, MODELS } from '#test/unit/workers/engine/generate.ts'
import { mergeAdapter } from '#workers/adapters/merge-adapter.ts'
import { readPeftAdapter } from '#workers/adapters/peft-files.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { loadTextModel } from '#workers/text/text-model.ts'

const ADAPTERS = join(import.meta.dirname, '../../../fixtures/adapters')
const root = mkdtempSync(join(tmpdir(), 'millrace-merged-'))
const runtime = openRuntime()
afterAll(async () => {
  await runtime.close()
  rmSync(root, { recursive: true })
})

describe('a model with an adapter folded in', () => {
  it.each([
    ['llama', 'model', 'llama/plain', 'model'],
    ['llama', 'model', 'llama/ranks', 'model'],
    ['llama', 'model_q4', 'llama/plain', 'model_q4'],
    ['llama-in-place', 'model', 'llama/head', 'model'],
    ['llama-external', 'model', 'llama/plain', 'model'],
    ['gpt2', 'model', 'gpt2/fused', 'model'],
    ['phi3', 'model', 'phi3/fused', 'model'],
  ])('%s/%s with %s gives the tokens of PEFT', async (name, onnxFile, adapter, golden) => {
    const folder = join(ADAPTERS, adapter)
    const target = join(root, `${name}-${onnxFile}-${adapter.replace('/', '-')}`)
    const peft = await readPeftAdapter(folder, { rankMax: 64, bytesMax: 1 << 20 })
    const base = { folder: join(MODELS, name), onnxFile }
    await mergeAdapter(runtime, base, { adapter: peft, target })
    const { ids, files } = JSON.parse(readFileSync(join(folder, 'golden.json'), 'utf8'))
    const engine = await openTextEngine({ runtime, folder: target, slots: 2, intraOpThreads: 1 })
    try {
      const { greedy } = files[golden]
      const answer = await generate(engine, { promptTokenIds: ids, maxNewTokens: greedy.length })
      expect(answer.tokenIds).toEqual(greedy)
    } finally {
      await engine.close()
    }
    await loadTextModel(target, { now: () => 0, monotonic: () => 0 })
    const deeper = readdirSync(target, { recursive: true, encoding: 'utf8' }).filter((path) =>
      path.includes('/'),
    )
    expect(deeper.toSorted()).toEqual(['onnx/model.onnx', 'onnx/model.onnx_data'])
  })

  it('keeps integer layers that the adapter does not change', async () => {
    const folder = join(ADAPTERS, 'llama/ranks')
    const target = join(root, 'integers')
    const adapter = await readPeftAdapter(folder, { rankMax: 64, bytesMax: 1 << 20 })
    const base = { folder: join(MODELS, 'llama-in-place-dynamic'), onnxFile: 'model_quantized' }
    await mergeAdapter(runtime, base, { adapter, target })
    const open = async (where: string) => openTextEngine({ runtime, folder: where, slots: 1 })
    const [served, merged] = [await open(base.folder), await open(target)]
    try {
      const fitted = await served.fitAdapter(adapter)
      const promptTokenIds = [5, 6, 7, 8, 9, 10, 11]
      const expected = await generate(served, { promptTokenIds, maxNewTokens: 1, adapter: fitted })
      const answer = await generate(merged, { promptTokenIds, maxNewTokens: 1 })
      expect(answer.tokenIds).toEqual(expected.tokenIds)
    } finally {
      await served.close()
      await merged.close()
    }
  })
})
