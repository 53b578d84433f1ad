import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { readPeftAdapter, writePeftAdapter } from '#workers/adapters/peft-files.ts'
import { readSafetensors, writeSafetensors } from '#workers/tensor/safetensors.ts'

const root = mkdtempSync(join(tmpdir(), 'millrace-peft-'))
afterAll(() => rmSync(root, { recursive: true }))

const LIMITS = { rankMax: 8, bytesMax: 1 << 20 }
const PATH = 'model.layers.0.self_attn.q_proj'
const STEM = `base_model.model.${PATH}`
const CONFIG = { peft_type: 'LORA', r: 2, lora_alpha: 6, target_modules: ['q_proj'] }
const tensor = (dims: number[], fill?: number) => ({
  dims,
  values: Float32Array.from({ length: dims.reduce((a, b) => a * b) }, (_, at) => fill ?? at / 8),
})
const PAIR = {
  [`${STEM}.lora_A.weight`]: tensor([2, 4]),
  [`${STEM}.lora_B.weight`]: tensor([3, 2]),
}

let folders = 0
function folderOf(config: object, tensors: Record<string, ReturnType<typeof tensor>>): string {
  folders += 1
  const folder = join(root, String(folders))
  mkdirSync(folder)
  writeFileSync(join(folder, 'adapter_config.json'), JSON.stringify({ ...CONFIG, ...config }))
  const bytes = writeSafetensors(new Map(Object.entries(tensors)))
  writeFileSync(join(folder, 'adapter_model.safetensors'), bytes)
  return folder
}

describe('an adapter in PEFT form', () => {
  it('is the same after it is written and read again', async () => {
    const module = { inSize: 4, outSize: 3, a: tensor([2, 4]).values, b: tensor([3, 2]).values }
    const files = writePeftAdapter({ rank: 2, alpha: 6, modules: new Map([[PATH, module]]) })
    const folder = join(root, 'written')
    mkdirSync(folder)
    for (const [name, bytes] of Object.entries(files)) writeFileSync(join(folder, name), bytes)
    const { modules } = await readPeftAdapter(folder, LIMITS)
    expect([...modules]).toEqual([[PATH, { ...module, rank: 2, scale: 3 }]])
  })

  it.each<[object, number]>([
    [{}, 3],
    [{ use_rslora: true }, 6 / Math.sqrt(2)],
    [{ r: 4, rank_pattern: { q_proj: 2 } }, 3],
    [{ r: 4, rank_pattern: { 'layers.0.self_attn.q_proj': 2, k_proj: 4 } }, 3],
    [{ alpha_pattern: { '^model.layers.0.self_attn.q_proj': 1 } }, 0.5],
    [{ alpha_pattern: { '^layers.0.self_attn.q_proj': 1, proj: 1 } }, 3],
    [{ rank_pattern: { q_proj: 2 }, alpha_pattern: { q_proj: 8 }, use_rslora: true }, 8 / 2 ** 0.5],
  ])('with %j is scaled by %d', async (config, scale) => {
    const { modules } = await readPeftAdapter(folderOf(config, PAIR), LIMITS)
    expect(modules.get(PATH)?.scale).toBeCloseTo(scale, 12)
  })

  it.each<[string, object, Record<string, ReturnType<typeof tensor>>]>([
    ['peft_type is "IA3"', { peft_type: 'IA3' }, PAIR],
    ['use_dora is true', { use_dora: true }, PAIR],
    ['modules_to_save is ["lm_head"]', { modules_to_save: ['lm_head'] }, PAIR],
    ['lora_bias is true', { lora_bias: true }, PAIR],
    ['bias is "all"', { bias: 'all' }, PAIR],
    ['init_lora_weights is "pissa"', { init_lora_weights: 'pissa' }, PAIR],
    ['rank_pattern is {"(a+)+$":2}', { rank_pattern: { '(a+)+$': 2 } }, PAIR],
    ['lora_A.weight has rank 2, but adapter_config.json says 4', { r: 4 }, PAIR],
    ['lora_magnitude_vector', {}, { ...PAIR, [`${STEM}.lora_magnitude_vector`]: tensor([3]) }],
    ['lora_B.weight is missing', {}, { [`${STEM}.lora_A.weight`]: tensor([2, 4]) }],
    ['lora_A.weight is missing', {}, { [`${STEM}.lora_B.weight`]: tensor([3, 2]) }],
    [
      'lora_B.weight is [2, 3], not [out, 2]',
      {},
      { ...PAIR, [`${STEM}.lora_B.weight`]: tensor([2, 3]) },
    ],
    [
      'lora_A.weight is [8], not [rank, in]',
      {},
      { ...PAIR, [`${STEM}.lora_A.weight`]: tensor([8]) },
    ],
    [
      'lora_B.weight has elements that are NaN',
      {},
      { ...PAIR, [`${STEM}.lora_B.weight`]: tensor([3, 2], NaN) },
    ],
    [
      'lora_A.weight has elements that are NaN or infinite',
      {},
      { ...PAIR, [`${STEM}.lora_A.weight`]: tensor([2, 4], -Infinity) },
    ],
    [
      'rank 9, more than the limit of 8',
      { r: 9 },
      { [`${STEM}.lora_A.weight`]: tensor([9, 4]), [`${STEM}.lora_B.weight`]: tensor([3, 9]) },
    ],
    ['has no tensors', {}, {}],
  ])('is refused: %s', async (message, config, tensors) => {
    await expect(readPeftAdapter(folderOf(config, tensors), LIMITS)).rejects.toThrow(message)
  })

  it('is refused without its tensor file and above the byte limit', async () => {
    const folder = folderOf({}, PAIR)
    await expect(readPeftAdapter(folder, { ...LIMITS, bytesMax: 100 })).rejects.toThrow('bytes')
    rmSync(join(folder, 'adapter_model.safetensors'))
    await expect(readPeftAdapter(folder, LIMITS)).rejects.toThrow('safetensors is missing')
  })
})

describe('a safetensors file', () => {
  const VALUES = Float32Array.of(1, -2.5, 0.1, 3e-5, 65504, 1.00390625, 1.01171875, NaN)
  it.each([
    ['F32', Array.from(VALUES)],
    ['F16', Array.from(Float16Array.from(VALUES))],
    // Rounded to eight bits of fraction, halves to even, as torch.Tensor.bfloat16 does.
    ['BF16', [1, -2.5, 0.10009765625, 3.0040740966796875e-5, 65536, 1, 1.015625, NaN]],
  ] as const)('of %s holds values in that precision', async (type, expected) => {
    const path = join(root, `${type}.safetensors`)
    const tensors = new Map([['values', { dims: [2, 4], values: VALUES }]])
    writeFileSync(path, writeSafetensors(tensors, { type }))
    const { dims, values } = (await readSafetensors(path)).get('values') ?? {}
    expect(dims).toEqual([2, 4])
    expect(Array.from(values ?? [])).toEqual(expected)
  })
})
