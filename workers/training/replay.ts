import { createHash } from 'node:crypto'
import { readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'

import { failure } from '#shared/errors.ts'
import { isRecord } from '#shared/json.ts'
import { uniformAt } from '#workers/sampling/counter-random.ts'

import { numTargets } from './batches.ts'
import type { TokenizedExample } from './examples.ts'

/** Examples of what a model can do, one JSON object per line, in its folder. */
const REPLAY_FILE = 'replay.jsonl'

const FILE_BYTES_MAX = 64 << 20

/** Replayed examples of a step for each example of the file. */
const SHARE = 1

/**
 * The examples that a training replays so that the model keeps its skills; none where its folder
 * has no `replay.jsonl`. A line holds `token_ids` and `targets`, the ranges `[start, end]` of them
 * that are learned.
 */
export async function readReplay(
  folder: string,
  { tokensMax, vocabularySize }: { readonly tokensMax: number; readonly vocabularySize: number },
): Promise<{ readonly examples: readonly TokenizedExample[]; readonly digest: string | null }> {
  const path = join(folder, REPLAY_FILE)
  const bytes = await stat(path).then(
    ({ size }) => size,
    () => 0,
  )
  if (bytes === 0) return { examples: [], digest: null }
  if (bytes > FILE_BYTES_MAX) throw unusable(`has ${bytes} bytes, more than ${FILE_BYTES_MAX}`)
  const text = await readFile(path, 'utf8')
  const lines = text.split('\n').filter((line) => line !== '')
  const examples = lines.map((line, index) => {
    const example = parse(line, vocabularySize)
    if (example === undefined) throw unusable(`has no example in line ${index + 1}`)
    return example
  })
  return {
    examples: examples.filter(
      (example) => example.tokenIds.length <= tokensMax && numTargets(example) > 0,
    ),
    digest: createHash('sha256').update(text).digest('hex'),
  }
}

/** The examples that a step replays; they follow from the seed. */
export function replayOf(
  examples: readonly TokenizedExample[],
  {
    seed,
    step,
    batchSize,
  }: { readonly seed: number; readonly step: number; readonly batchSize: number },
): readonly TokenizedExample[] {
  if (examples.length === 0) return []
  return Array.from({ length: Math.ceil(batchSize * SHARE) }, (_, index) => {
    const at = Math.floor(uniformAt(seed, step, index) * examples.length)
    return examples[at] as TokenizedExample
  })
}

function parse(line: string, vocabularySize: number): TokenizedExample | undefined {
  const found = parseJson(line)
  if (!isRecord(found)) return undefined
  const { token_ids: tokenIds, targets } = found
  const isToken = (id: unknown): boolean => isBelow(id, vocabularySize)
  if (!Array.isArray(tokenIds) || !tokenIds.every(isToken)) return undefined
  const isRange = (range: unknown): range is [number, number] =>
    Array.isArray(range) && range.length === 2 && range.every((at) => isBelow(at, Infinity))
  if (!Array.isArray(targets) || !targets.every(isRange)) return undefined
  const isTarget = tokenIds.map((_, at) => targets.some(([start, end]) => start <= at && at < end))
  return { tokenIds: tokenIds as number[], isTarget }
}

function parseJson(line: string): unknown {
  try {
    return JSON.parse(line)
  } catch {
    return undefined
  }
}

function isBelow(value: unknown, bound: number): boolean {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 && value < bound
}

function unusable(what: string): Error {
  return failure.invalidRequest(`The file ${REPLAY_FILE} of the model ${what}.`, {
    param: 'model',
    code: 'model_not_supported',
  })
}
