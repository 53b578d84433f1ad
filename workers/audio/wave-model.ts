import { Batcher } from '#workers/embedding/batcher.ts'
import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'
import { openSessionPool } from '#workers/runtime/session-pool.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'
import { allocateElements, type ElementType } from '#workers/tensor/element-type.ts'

/** A graph that reads the samples of a recording. */
export interface WaveModel<Row> {
  /** Recordings that are read at the same time share a run. */
  run(samples: Float32Array, signal: AbortSignal): Promise<Row>
  close(): Promise<void>
}

/** A graph, and the reader of its output. */
interface WaveModelOptions<Row> {
  readonly runtime: Runtime
  readonly file: string
  /** The name of the output that is read. */
  readonly output: string
  /**
   * Whether recordings of different lengths may share a run, which requires that padding does not
   * change the others. Needs a graph with `attention_mask`.
   */
  readonly pads: boolean
  /** Whether recordings of one run would change each other's text. */
  readonly isRowCoupled: boolean
  readonly session?: SessionOptions
  /** Opens the reader of outputs of this precision. */
  openReader(type: ElementType): Promise<RowReader<Row>>
}

/** Reads the output of a run. */
export interface RowReader<Row> {
  /**
   * Reads the result of each row. `lengths` are the samples of the rows; `output` is disposed
   * later.
   */
  read(output: Tensor, lengths: readonly number[]): Promise<readonly Row[]>
  close(): Promise<void>
}

const VALUES = 'input_values'
const MASK = 'attention_mask'
const ROWS_MAX = 4
// Keeps silence finite (transformers, Wav2Vec2FeatureExtractor).
const VARIANCE_MIN = 1e-7

/** Loads a graph with `input_values [rows, samples]`. Throws `ModelLoadError` for other inputs. */
export async function openWaveModel<Row>(options: WaveModelOptions<Row>): Promise<WaveModel<Row>> {
  const { runtime, file, isRowCoupled } = options
  const sessions = await openSessionPool(runtime, file, options.session ?? {})
  return closeOnFailure(sessions, async () => {
    const { hasMask, type } = checkGraph(sessions.wide, options.output)
    const pads = options.pads && hasMask
    const reader = await options.openReader(type)
    const tools = { ...options, reader }
    const batcher = new Batcher<Float32Array, Row>({
      maxBatchTokens: Number.MAX_SAFE_INTEGER,
      maxBatchSize: isRowCoupled ? 1 : ROWS_MAX,
      poolSize: sessions.poolSize,
      lengthOf: ({ length }) => length,
      async run(recordings, isAlone) {
        const session = sessions.choose(isAlone)
        if (pads) return runRows(tools, session, recordings)
        const rows: Row[] = []
        for (const places of placesByLength(recordings)) {
          const group = places.map((place) => recordings[place] as Float32Array)
          const found = await runRows(tools, session, group)
          for (const [index, place] of places.entries()) rows[place] = found[index] as Row
        }
        return rows
      },
    })
    return {
      run: (samples, signal) => batcher.submit(samples, signal),
      async close() {
        await Promise.all([sessions.close(), reader.close()])
      },
    }
  })
}

/** Whether the graph takes a mask, and the precision of its output. */
function checkGraph(
  { file, inputs, outputs }: ModelSession,
  output: string,
): { readonly hasMask: boolean; readonly type: ElementType } {
  const unknown = inputs.find(({ name }) => name !== VALUES && name !== MASK)
  if (unknown !== undefined) {
    throw new ModelLoadError(file, `the input ${unknown.name} is not known`)
  }
  const mask = inputs.find(({ name }) => name === MASK)
  if (mask !== undefined && mask.type !== 'int64') {
    throw new ModelLoadError(file, `${MASK} is ${mask.type}, expected int64`)
  }
  if (inputs.length === (mask === undefined ? 0 : 1)) {
    throw new ModelLoadError(file, `there is no input ${VALUES}`)
  }
  const type = outputs.find(({ name }) => name === output)?.type
  if (type !== 'float32' && type !== 'float16') {
    throw new ModelLoadError(file, `there is no output ${output} of floats`)
  }
  return { hasMask: mask !== undefined, type }
}

/** The positions of recordings of equal length, for each length. */
function placesByLength(recordings: readonly Float32Array[]): readonly (readonly number[])[] {
  const places = new Map<number, number[]>()
  for (const [place, { length }] of recordings.entries()) {
    places.set(length, [...(places.get(length) ?? []), place])
  }
  return [...places.values()]
}

async function runRows<Row>(
  { runtime, output, reader }: WaveModelOptions<Row> & { readonly reader: RowReader<Row> },
  session: ModelSession,
  recordings: readonly Float32Array[],
): Promise<readonly Row[]> {
  const lengths = recordings.map(({ length }) => length)
  const width = Math.max(...lengths)
  const dims = [recordings.length, width]
  const tensors = session.inputs.map(({ name, type = 'float32' }) => {
    if (name === MASK) {
      const mask = new BigInt64Array(recordings.length * width)
      for (const [row, length] of lengths.entries())
        mask.fill(1n, row * width, row * width + length)
      return [name, runtime.tensor('int64', mask, dims)] as const
    }
    const values = allocateElements(type, recordings.length * width) as Float32Array
    for (const [row, samples] of recordings.entries()) values.set(samples, row * width)
    return [name, runtime.tensor(type, values, dims)] as const
  })
  try {
    const fetched = await session.run(Object.fromEntries(tensors), { [output]: null })
    const found = fetched[output] as Tensor
    try {
      return await reader.read(found, lengths)
    } finally {
      found.dispose()
    }
  } finally {
    for (const [, tensor] of tensors) tensor.dispose()
  }
}

/** Samples scaled to mean 0 and variance 1, as by transformers' feature extractor. */
export function normalizeWave(samples: Float32Array): Float32Array {
  const mean = samples.reduce((sum, value) => sum + value, 0) / samples.length
  const variance = samples.reduce((sum, value) => sum + (value - mean) ** 2, 0) / samples.length
  const scale = 1 / Math.sqrt(variance + VARIANCE_MIN)
  return samples.map((value) => (value - mean) * scale)
}
