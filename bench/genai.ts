import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { createInterface } from 'node:readline'

import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { openRuntime, type Runtime } from '#workers/runtime/runtime.ts'

import { measureStep, STEP_TOKENS } from './decoder-forms.ts'
import type { Figure } from './figure.ts'
import { alternate } from './rounds.ts'

/** Made by bench/peers/make-genai.py. */
const FOLDER = '.data/bench/genai'
/** A Python with onnxruntime-genai. */
const PYTHON = process.env.BENCH_PYTHON
const FORMS = ['fp32', 'int4'] as const
/** Tokens of context and rows; more rows of the longest context would take minutes each. */
const SHAPES = [
  ...([1, 4, 8] as const).map((rows) => ({ context: 64, rows })),
  ...([1, 4, 8] as const).map((rows) => ({ context: 1024, rows })),
  { context: 4000, rows: 1 },
]
const SLOTS = 8

/** Time of a decode step ÷ onnxruntime-genai, on the files of its own builder. */
export async function benchGenai(): Promise<readonly Figure[]> {
  if (!existsSync(FOLDER) || PYTHON === undefined) return []
  const runtime = openRuntime()
  try {
    const figures: Figure[] = []
    for (const form of FORMS) {
      figures.push(...(await compareForm(runtime, { python: PYTHON, form })))
    }
    return figures
  } finally {
    await runtime.close()
  }
}

async function compareForm(
  runtime: Runtime,
  { python, form }: { readonly python: string; readonly form: string },
): Promise<Figure[]> {
  const folder = `${FOLDER}/${form}`
  const peer = await openPeer(python, folder)
  const engine = await openTextEngine({ runtime, folder, slots: SLOTS })
  try {
    assert.equal(engine.cachePath, 'in place')
    const figures: Figure[] = []
    for (const { context, rows } of SHAPES) {
      const found = await alternate(
        () => measureStep(engine, context, rows),
        () => peer.measureStep(context, rows),
      )
      const name = `in place ÷ onnxruntime-genai, ${form}, ${context} tokens, ${rows} rows`
      figures.push({ name, unit: 'ms a step', ...found, target: { atMost: 1.05 } })
    }
    return figures
  } finally {
    await engine.close()
    peer.close()
  }
}

/** A Python process with the model open in onnxruntime-genai. */
async function openPeer(python: string, folder: string) {
  const child = spawn(python, ['bench/peers/genai-steps.py', folder], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]()
  const readLine = async (): Promise<string> => {
    const { value, done } = await lines.next()
    assert(done !== true, 'onnxruntime-genai ended')
    return value
  }
  assert.equal(await readLine(), 'ready')
  return {
    async measureStep(context: number, rows: number): Promise<number> {
      child.stdin.write(`${context} ${rows} ${STEP_TOKENS}\n`)
      return Number(await readLine())
    },
    close: () => void child.kill(),
  }
}
