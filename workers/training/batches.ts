import { defined } from '#shared/json.ts'
import { uniformAt } from '#workers/sampling/counter-random.ts'

import type { TokenizedExample } from './examples.ts'

/** Texts of one run of the graph: each row contains one or more, concatenated. */
export type Layout = readonly (readonly TokenizedExample[])[]

/** How texts are packed into runs. */
export interface LayoutLimits {
  /** Tokens of a run, padding included. */
  readonly tokensMax: number
  /** Several texts may share a row. */
  readonly packs: boolean
}

/** The examples of each step of an epoch, in an order that follows from the seed. */
export function batchesOf<Example>(
  examples: readonly Example[],
  {
    seed,
    epoch,
    batchSize,
  }: { readonly seed: number; readonly epoch: number; readonly batchSize: number },
): readonly (readonly Example[])[] {
  const order = [...examples.keys()]
  // Fisher and Yates: every order has the same probability.
  for (let index = order.length - 1; index > 0; index -= 1) {
    const other = Math.floor(uniformAt(seed, epoch, index) * (index + 1))
    const moved = defined(order[index])
    order[index] = defined(order[other])
    order[other] = moved
  }
  const shuffled = order.map((index) => defined(examples[index]))
  const count = Math.ceil(shuffled.length / batchSize)
  return Array.from({ length: count }, (_, batch) => {
    return shuffled.slice(batch * batchSize, (batch + 1) * batchSize)
  })
}

/** Rows of short texts are padded to this length, or to that of the longest text. */
const ROW_TOKENS = 128

/**
 * Puts the texts of a step into as few padded tokens as is cheap: long texts first, each into the
 * first row with room, and rows of similar length into the same run.
 */
export function layOut(
  examples: readonly TokenizedExample[],
  { tokensMax, packs }: LayoutLimits,
): readonly Layout[] {
  const sorted = examples.toSorted((a, b) => b.tokenIds.length - a.tokenIds.length)
  const longest = sorted[0]?.tokenIds.length ?? 0
  const room = packs ? Math.max(longest, Math.min(ROW_TOKENS, tokensMax)) : 0
  const rows: { examples: TokenizedExample[]; length: number }[] = []
  for (const example of sorted) {
    const { length } = example.tokenIds
    const row = rows.find((candidate) => candidate.length + length <= room)
    if (row) {
      row.examples.push(example)
      row.length += length
    } else rows.push({ examples: [example], length })
  }
  rows.sort((a, b) => b.length - a.length)
  const runs: TokenizedExample[][][] = []
  let width = 0
  for (const row of rows) {
    const run = runs.at(-1)
    if (run && (run.length + 1) * width <= tokensMax) run.push(row.examples)
    else {
      runs.push([row.examples])
      width = row.length
    }
  }
  return runs
}

/** The inputs of a run. */
export interface RunInputs {
  readonly rows: number
  readonly width: number
  readonly ids: BigInt64Array
  readonly mask: BigInt64Array
  readonly positions: BigInt64Array
  readonly segments: BigInt64Array
  /** Tokens whose successor is a target, by their index in the concatenated rows. */
  readonly targetRows: BigInt64Array
  readonly targetIds: BigInt64Array
}

/** Rows are padded after their texts, where causal attention does not reach. */
export function inputsOf(layout: Layout): RunInputs {
  const lengthOf = (row: readonly TokenizedExample[]): number =>
    row.reduce((sum, { tokenIds }) => sum + tokenIds.length, 0)
  const width = Math.max(...layout.map(lengthOf))
  const size = layout.length * width
  const [ids, mask, positions] = [0, 1, 2].map(() => new BigInt64Array(size))
  const segments = new BigInt64Array(size).fill(-1n)
  const targets: { row: number; id: number }[] = []
  for (const [index, row] of layout.entries()) {
    let at = index * width
    for (const [segment, { tokenIds, isTarget }] of row.entries()) {
      for (const [position, id] of tokenIds.entries()) {
        defined(ids)[at] = BigInt(id)
        defined(mask)[at] = 1n
        defined(positions)[at] = BigInt(position)
        segments[at] = BigInt(segment)
        const next = tokenIds[position + 1]
        if (next !== undefined && isTarget[position + 1]) targets.push({ row: at, id: next })
        at += 1
      }
    }
  }
  return {
    rows: layout.length,
    width,
    segments,
    ids: defined(ids),
    mask: defined(mask),
    positions: defined(positions),
    targetRows: BigInt64Array.from(targets, ({ row }) => BigInt(row)),
    targetIds: BigInt64Array.from(targets, ({ id }) => BigInt(id)),
  }
}

/** Targets of an example; the first token is not a target, because nothing predicts it. */
export function numTargets({ isTarget }: TokenizedExample): number {
  return isTarget.reduce((sum, wanted, index) => sum + (wanted && index > 0 ? 1 : 0), 0)
}
