import { defined } from '#shared/json.ts'
import { presentOf } from '#workers/engine/past-inputs.ts'
import type { Model } from '#workers/graph/model.ts'

import type { ReferenceRun } from './add-caches.ts'
import { openModel, type ProbeContext, type ProbeTensor } from './graph-probe.ts'
import type { HeadShape } from './probe-feeds.ts'

/** Token counts of the runs that compute the text: a prompt, a chunk and two decode steps. */
const LENGTHS = [6, 4, 1, 1]

/** Allowed difference, as a share of the range of logits, for rounding of values and weights. */
const TOLERANCES = { float32: 2e-3, float16: 2e-2 } as const

/** Whether a rewritten graph computes the same logits in parts as the original in one run. */
export async function computesText(
  context: ProbeContext,
  model: Model,
  { shape, reference }: { readonly shape: HeadShape; readonly reference: ReferenceRun },
): Promise<boolean> {
  const { tokenIds } = reference
  const { type, pasts, numCacheHeads, headDim } = shape
  const probe = await openModel(context, model)
  try {
    let caches: Record<string, ProbeTensor> = Object.fromEntries(
      pasts.map((name) => [name, { type, dims: [1, numCacheHeads, 0, headDim], values: 0 }]),
    )
    let past = 0
    for (const length of LENGTHS) {
      const total = past + length
      const feed = (values: readonly number[]): ProbeTensor => {
        return { type: 'int64', dims: [1, values.length], values }
      }
      const results = await probe.run({
        ...caches,
        input_ids: feed(tokenIds.slice(past, total)),
        attention_mask: feed(new Array<number>(total).fill(1)),
        position_ids: feed(Array.from({ length }, (_, at) => past + at)),
      })
      const tensorOf = (wanted: string): ProbeTensor => {
        const at = probe.outputs.findIndex(({ name }) => name === wanted)
        const { dims, values } = defined(results[at])
        return { type, dims, values }
      }
      const logits = tensorOf('logits').values as Float32Array
      const width = logits.length / length
      const hasAllLogits = reference.logits.length === tokenIds.length * width
      const expected = hasAllLogits
        ? reference.logits.subarray(past * width, total * width)
        : reference.logits
      const isCompared = hasAllLogits || total === tokenIds.length
      if (isCompared && !areClose(expected, logits, TOLERANCES[type])) return false
      caches = Object.fromEntries(pasts.map((name) => [name, tensorOf(presentOf(name))]))
      past = total
    }
    return true
  } finally {
    await probe.close()
  }
}

/** Whether logits differ by at most this share of their range. */
export function areClose(a: Float32Array, b: Float32Array, tolerance: number): boolean {
  let [lowest, highest, difference] = [Infinity, -Infinity, 0]
  for (const [index, value] of a.entries()) {
    lowest = Math.min(lowest, value)
    highest = Math.max(highest, value)
    difference = Math.max(difference, Math.abs(value - (b[index] ?? Number.NaN)))
  }
  return difference <= tolerance * (highest - lowest)
}
