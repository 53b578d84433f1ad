import { readFileSync } from 'node:fs'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '../../..')

/** Rounding differs between processors, which turns the one or other greedy answer. */
export const SCORE_MARGIN = 0.06

/** The folder of a model that ships with the repository. */
export function modelFolder(name: string): string {
  return join(ROOT, 'models', name)
}

/** The held-out problems that `evaluate` of a model wrote. */
export function readEvals<T>(name: string): T {
  return readJson(join(ROOT, 'test/fixtures/evals', `${name}.json`))
}

/** The scores of a model by name, as its own training tools measured them in onnxruntime. */
export function measuredScores(name: string): Readonly<Record<string, number>> {
  const { gates } = readJson<{ gates: Record<string, { score?: number }> }>(
    join(modelFolder(name), 'eval.json'),
  )
  return Object.fromEntries(
    Object.entries(gates).flatMap(([gate, { score }]) =>
      score === undefined ? [] : [[gate, score]],
    ),
  )
}

export function readJson<T>(path: string): T {
  return JSON.parse(readFileSync(path, 'utf8'))
}
