import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

import type { Figure } from './figure.ts'
import { median } from './support/quantile.ts'

const FOLDER = '.data/bench/smollm2-shape'
/** The name of a Python with torch, transformers and peft. */
const PYTHON = process.env.BENCH_PYTHON
const RANK = 16
const TEXTS = 4
const LENGTH = 256
const STEPS = 4

/** Trained tokens per second and peak memory ÷ torch and PEFT, the same shape and batch. */
export async function benchTrainingSpeed(): Promise<readonly Figure[]> {
  if (!existsSync(FOLDER) || PYTHON === undefined) return []
  const asked = [FOLDER, RANK, TEXTS, LENGTH, STEPS].map(String)
  const ours = await runSteps(process.execPath, ['bench/support/train-steps.ts', ...asked])
  const theirs = await runSteps(PYTHON, ['bench/peers/peft-steps.py', ...asked])
  const about = `SmolLM2-135M's shape in fp32, rank ${RANK}, ${TEXTS} texts of ${LENGTH} tokens`
  return [
    {
      name: `trained tokens ÷ torch and PEFT, ${about}`,
      unit: 'tokens/s',
      ours: (TEXTS * LENGTH) / ours.seconds,
      theirs: (TEXTS * LENGTH) / theirs.seconds,
      target: { atLeast: 1 },
    },
    {
      name: `peak memory ÷ torch and PEFT, ${about}`,
      unit: 'MiB',
      ours: ours.peakMib,
      theirs: theirs.peakMib,
      target: { atMost: 1 },
    },
  ]
}

/** The median time of a step after the first, and the most memory of the process. */
async function runSteps(command: string, args: readonly string[]) {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  const seconds: number[] = []
  let peakMib = 0
  for await (const line of createInterface(child.stdout)) {
    seconds.push(Number(line))
    const status = readFileSync(`/proc/${child.pid}/status`, 'utf8')
    peakMib = Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1024
  }
  if (child.exitCode === null) await once(child, 'exit')
  if (seconds.length !== STEPS) throw new Error(`${args[0]} made ${seconds.length} steps`)
  return { seconds: median(seconds.slice(1)), peakMib }
}
