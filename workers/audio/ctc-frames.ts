import { int, ints, makeModel, makeNode, makeValue } from '#workers/graph/model.ts'
import { writeModel } from '#workers/graph/write-model.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ElementType } from '#workers/tensor/element-type.ts'

import type { RowReader } from './wave-model.ts'

/** The likeliest token of each frame. */
export interface CtcFrames {
  readonly tokenIds: BigInt64Array
  readonly logprobs: Float32Array
}

/**
 * Chooses the likeliest token of each frame (Graves et al. 2006, best path) by a graph, off the
 * event loop: a window may have a million logits. `logits` are `[rows, frames, tokens]`.
 */
export async function openFrameReader(
  runtime: Runtime,
  type: ElementType,
  countFrames: (samples: number) => number,
): Promise<RowReader<CtcFrames>> {
  const graph = { name: 'the frame graph', bytes: makeFrameGraph(type) }
  const session = await runtime.load(graph, { intraOpThreads: 1 })
  return {
    async read(logits, lengths) {
      const { ids, logprobs } = await session.run({ logits }, { ids: null, logprobs: null })
      const width = logits.dims[1] as number
      const rows = lengths.map((samples, row) => {
        const [from, to] = [row * width, row * width + Math.min(countFrames(samples), width)]
        return {
          tokenIds: (ids.data as BigInt64Array).slice(from, to),
          logprobs: (logprobs.data as Float32Array).slice(from, to),
        }
      })
      ids.dispose()
      logprobs.dispose()
      return rows
    },
    close: () => session.close(),
  }
}

function makeFrameGraph(type: ElementType): Uint8Array {
  const last = { attributes: { axes: ints(2), keepdims: int(0) } }
  return writeModel(
    makeModel({
      name: 'frames',
      nodes: [
        makeNode('Cast', ['logits'], 'scores', { attributes: { to: int(1) } }),
        makeNode('ArgMax', ['scores'], 'ids', { attributes: { axis: int(2), keepdims: int(0) } }),
        makeNode('ReduceMax', ['scores'], 'highest', last),
        makeNode('ReduceLogSumExp', ['scores'], 'total', last),
        makeNode('Sub', ['highest', 'total'], 'logprobs'),
      ],
      constants: [],
      inputs: [makeValue('logits', type, ['', '', ''])],
      outputs: [makeValue('ids', 'int64', ['', '']), makeValue('logprobs', 'float32', ['', ''])],
    }),
  )
}
