import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

import type { Figure } from './figure.ts'
import { median } from './support/quantile.ts'

const FOLDER = '.data/bench/smollm2-shape'
/** A Python with torch, transformers and peft. */
const PYTHON = process.env.BENCH_PYTHON
const ROUNDS = 2
const RANK = 16
const TEXTS = 4
const LENGTH = 256
const STEPS = 4

/** Trained tokens per second and peak memory ÷ torch and PEFT, the same shape and batch. */
export async function benchTrainingSpeed(): Promise<readonly Figure[]> {
  if (!existsSync(FOLDER) || PYTHON === undefined) return []
  const asked = [FOLDER, RANK, TEXTS, LENGTH, STEPS].map(String)
  const rounds: { readonly ours: Steps; readonly theirs: Steps }[] = []
  for (let round = 0; round < ROUNDS; round += 1) {
    rounds.push({
      ours: await runSteps(process.execPath, ['bench/support/train-steps.ts', ...asked]),
      theirs: await runSteps(PYTHON, ['bench/peers/peft-steps.py', ...asked]),
    })
  }
  const [ours, theirs] = [
    together(rounds.map((round) => round.ours)),
    together(rounds.map((round) => round.theirs)),
  ]
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

/** The times of the steps of a process, and the most memory that it took. */
interface Steps {
  readonly seconds: readonly number[]
  readonly peakMib: number
}

/** The median of the steps after the first of each process, which warms it up. */
function together(runs: readonly Steps[]) {
  return {
    seconds: median(runs.flatMap(({ seconds }) => seconds.slice(1))),
    peakMib: median(runs.map(({ peakMib }) => peakMib)),
  }
}

async function runSteps(command: string, args: readonly string[]): Promise<Steps> {
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
  return { seconds, peakMib }
}
