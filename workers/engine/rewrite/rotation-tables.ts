import { defined } from '#shared/json.ts'
import type { Model } from '#workers/graph/model.ts'

import type { Rotary } from './attention-layers.ts'
import type { RotationTables } from './attention-probe.ts'
import { openProbe, type ProbeContext, type ProbeResult } from './graph-probe.ts'
import { emptyFeeds, type HeadShape } from './probe-feeds.ts'

/**
 * The rotation of every position, as computed by the graph itself. Undefined for layers whose
 * rotation depends on more than the position, or differs between the two halves of a head.
 */
export async function readRotationTables(
  context: ProbeContext,
  model: Model,
  options: {
    readonly rotaries: readonly Rotary[]
    readonly contextLength: number
    readonly shape: HeadShape
  },
): Promise<ReadonlyMap<string, RotationTables>> {
  const { rotaries, contextLength, shape } = options
  const pairs = new Map(rotaries.map((rotary) => [keyOf(rotary), rotary]))
  const found = new Map<string, RotationTables>()
  // Positions of images differ by axis, so a single number does not determine the rotation.
  if (shape.positionAxes > 1) return found
  for (const [key, { cos, sin, isHalved }] of pairs) {
    const probe = await openProbe(context, model, { wanted: [cos, sin], boundary: {} })
    if (probe === undefined) continue
    try {
      const whole = await probe.run(emptyFeeds(shape, 0, contextLength))
      const later = await probe.run(
        shape.hasPast ? emptyFeeds(shape, 5, 3) : emptyFeeds(shape, 0, 8),
      )
      const [cosTable, sinTable] = whole.map((result, index) => {
        return halfOf(result, contextLength, defined(later[index]), isHalved)
      })
      if (cosTable && sinTable) {
        found.set(key, { cos: cosTable, sin: sinTable, width: cosTable.length / contextLength })
      }
    } finally {
      await probe.close()
    }
  }
  return found
}

/** Rotations with the same tensors share their tables. */
export function keyOf({ cos, sin }: Rotary): string {
  return `${cos}\n${sin}`
}

/**
 * The first half of each row, if the second is equal and three later rows match those of a chunk;
 * the whole row if it has no second half.
 */
function halfOf(
  { values }: ProbeResult,
  rows: number,
  later: ProbeResult,
  isHalved: boolean,
): Float32Array | undefined {
  const width = values.length / rows
  if (!Number.isInteger(width) || later.values.length < 3 * width) return undefined
  const isSame = later.values.slice(-3 * width).every((value, index) => {
    return Math.abs(value - defined(values[5 * width + index])) < 1e-6
  })
  if (!isSame) return undefined
  if (isHalved) return values
  if (width % 2 === 1) return undefined
  const half = width / 2
  const table = new Float32Array(rows * half)
  for (let row = 0; row < rows; row += 1) {
    for (let column = 0; column < half; column += 1) {
      const value = defined(values[row * width + column])
      if (value !== values[row * width + half + column]) return undefined
      table[row * half + column] = value
    }
  }
  return table
}
