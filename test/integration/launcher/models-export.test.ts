import { readdirSync, readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { expect, vi } from 'vitest'

import { models } from '#launcher/commands/models.ts'
import { ensureDefaultOrganization } from '#shared/db/organizations.ts'
import { tuningTables } from '#shared/db/schema/fine-tuning.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import { REPOSITORY, startHub } from '#test/integration/models/hub-server.ts'
import { it } from '#test/support/services.ts'
import { writePeftAdapter } from '#workers/adapters/peft-files.ts'

it('writes the adapter of a tuned model, separately or folded into its base', async ({
  folder,
  databaseUrl,
  database,
}) => {
  const a = new Float32Array(2 * 192).fill(0.01)
  const layer = { inSize: 192, outSize: 192, a, b: a }
  const path = 'model.layers.0.self_attn.q_proj'
  const files = writePeftAdapter({ rank: 2, alpha: 4, modules: new Map([[path, layer]]) })
  const store = openDirectoryStore(join(folder, 'objects'))
  const prefix = 'fine-tuning/ftjob-1/adapter'
  for (const [name, bytes] of Object.entries(files)) await store.put(`${prefix}/${name}`, bytes)
  const organizationId = await ensureDefaultOrganization(database.db, organizationTables(''))
  const id = `ft:tiny-chat:${organizationId}::1`
  const row = { id, organizationId, jobId: 'ftjob-1', model: 'tiny-chat', prefix }
  await database.db.insert(tuningTables('').models).values(row)
  const env = {
    DATABASE_URL: databaseUrl,
    MILLRACE_DATA_DIR: folder,
    AUTH_SITE_URL: 'http://localhost',
    AUTH_API_EXTERNAL_URL: 'http://localhost',
    AUTH_JWT_SECRET: 'long-enough-for-the-tests',
    MILLRACE_URL_SIGNING_SECRET: 'long-enough-for-the-tests',
  }
  const run = async (name: string, target: string, options: Record<string, string> = {}) => {
    const print = vi.spyOn(console, 'log').mockImplementation(() => undefined)
    await models(env, { positionals: ['export', name, join(folder, target)], options }).finally(
      () => print.mockRestore(),
    )
    return readdirSync(join(folder, target), { recursive: true }).toSorted()
  }
  expect(await run(id, 'peft')).toEqual(['adapter_config.json', 'adapter_model.safetensors'])
  expect(await run(id, 'merged', { merged: 'true' })).toEqual(
    expect.arrayContaining(['config.json', 'onnx/model.onnx', 'onnx/model.onnx_data']),
  )
  await writeFile(join(folder, 'taken'), '')
  await expect(run(id, 'taken')).rejects.toThrow('exists already')
  await expect(run('tiny-chat', 'new')).rejects.toThrow('has no adapter')
  await expect(run('ft:tiny-chat:x::2', 'new')).rejects.toThrow('there is no model ft:tiny-chat')
})

it('converts a checkpoint of the hub, and prints the entry of models.json', async ({ folder }) => {
  const checkpoint = 'test/fixtures/checkpoints/llama'
  const files = readdirSync(checkpoint).map((name) => [name, readFileSync(join(checkpoint, name))])
  const hub = await startHub({ ...Object.fromEntries(files), 'pytorch_model.bin': 'x' })
  const printed: string[] = []
  const print = vi.spyOn(console, 'log').mockImplementation((line) => void printed.push(line))
  const progress = vi.spyOn(console, 'error').mockImplementation(() => undefined)
  const env = { MILLRACE_DATA_DIR: folder, HF_ENDPOINT: hub.endpoint }
  const args = { positionals: ['convert', REPOSITORY], options: { weights: 'int4' } }
  try {
    await models(env, args)
    const target = join(folder, 'models/converted/someone--some-model-int4')
    expect(printed[0]).toBe(target)
    expect(progress).toHaveBeenCalledWith('100 % lm_head.matrix_Q8')
    expect(printed[1]).toContain(`"source": ${JSON.stringify(target)}`)
    expect(readdirSync(target, { recursive: true })).toEqual(
      expect.arrayContaining(['config.json', 'tokenizer.json', 'onnx/model.onnx']),
    )
    expect(hub.seen.some(({ path }) => path.includes('pytorch_model.bin'))).toBe(false)
    await expect(models(env, args)).rejects.toThrow('exists already')
  } finally {
    print.mockRestore()
    progress.mockRestore()
    await hub.close()
  }
})
