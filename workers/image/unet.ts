import { Batcher } from '#workers/embedding/batcher.ts'
import { readOperators } from '#workers/graph/operators.ts'
import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'
import { openSessionPool } from '#workers/runtime/session-pool.ts'

import type { EncodedPrompt } from './prompt-encoder.ts'
import { runVolumes, stack, type Volume } from './run-volumes.ts'
import { hasFreeSides } from './vae.ts'

/** The conditions of a row's prediction. */
export interface RowCondition {
  readonly text: EncodedPrompt
  /** `[1, width]`: for distilled models with a guidance input. */
  readonly guidance?: Volume
  /** `[1, 5 or 6]`: the conditions of size of Stable Diffusion XL. */
  readonly timeIds?: Volume
}

/** One row of a run of the U-Net: latents under one text. */
export interface UnetRow extends RowCondition {
  /** `[1, channels, height, width]`. */
  readonly sample: Volume
  readonly timestep: number
}

/** The U-Net, whose runs combine rows of several images. */
export interface Unet {
  /** The number of images that are worth computing in parallel. */
  readonly poolSize: number
  /** Whether it supports images of any size. */
  readonly isResizable: boolean
  /** The prediction for each row. */
  predict(rows: readonly UnetRow[], signal: AbortSignal): Promise<readonly Float32Array[]>
  close(): Promise<void>
}

/** Options of the runs. */
export interface UnetOptions {
  /** Latents of one channel of an image of the native size. */
  readonly nativeLatents: number
  /** Receives the number of rows of every run. */
  readonly onBatch?: (size: number) => void
}

interface Item {
  readonly row: UnetRow
  readonly signal: AbortSignal
}

// Rows of the native size: two guided images, or more smaller ones. More rows gain little on
// processors and cost the memory of their activations; accelerators gain.
const ROWS_MAX = { cpu: 4, cuda: 16 }
// A guided image; another session runs the next one.
const SHARED_ROWS_MAX = 2
// Images of one job; on processors as many as there are sessions.
const IMAGES_ON_ACCELERATOR = 4

/**
 * Opens the U-Net. While it runs, rows of other images wait; the next run takes those of the same
 * size. Each row is computed independently, so an image does not depend on its neighbours.
 */
export async function openUnet(
  runtime: Runtime,
  file: string,
  session: SessionOptions,
  { nativeLatents, onBatch }: UnetOptions,
): Promise<Unet> {
  const sessions = await openSessionPool(runtime, file, session)
  const { wide, poolSize } = sessions
  return await closeOnFailure(sessions, async () => {
    const { hasDynamicQuantization: isRowCoupled } = await readOperators(file)
    const isSplit = inputOf(wide, 'sample')?.dims[0] === 1
    const isAccelerated = session.executionProvider === 'cuda'
    const rowsMax = ROWS_MAX[isAccelerated ? 'cuda' : 'cpu']
    const rowsOf = (rows: number) => rows * nativeLatents
    const batcher = new Batcher<Item, Float32Array>({
      maxBatchTokens: rowsOf(rowsMax),
      maxBatchSize: isSplit || isRowCoupled ? 1 : rowsMax,
      poolSize,
      onBatch,
      ...(poolSize > 1 && { sharedBatchTokens: rowsOf(SHARED_ROWS_MAX) }),
      lengthOf: ({ row: { sample } }) => (sample.dims[2] as number) * (sample.dims[3] as number),
      canJoin: joinRule(wide),
      // The next step of an image follows from its last one.
      areItemsContinued: true,
      run(items, isAlone) {
        const rows = items.map(({ row }) => row)
        const signal = abortedByAll(items.map((item) => item.signal))
        return predictRows(runtime, sessions.choose(isAlone), rows, signal)
      },
    })
    return {
      poolSize: isAccelerated ? IMAGES_ON_ACCELERATOR : poolSize,
      isResizable: hasFreeSides(wide),
      predict: (rows, signal) =>
        Promise.all(rows.map((row) => batcher.submit({ row, signal }, signal))),
      close: () => sessions.close(),
    }
  })
}

function inputOf({ inputs }: ModelSession, name: string) {
  return inputs.find((input) => input.name === name)
}

/** Whether a graph takes a timestep for each row. */
function hasRowTimesteps(unet: ModelSession): boolean {
  const [steps] = inputOf(unet, 'timestep')?.dims ?? []
  return steps !== undefined && typeof steps !== 'number'
}

/**
 * Rows of one run have the same size and, if the graph takes a single timestep, the same timestep.
 */
function joinRule(unet: ModelSession): (oldest: Item, item: Item) => boolean {
  const areStepsFree = hasRowTimesteps(unet)
  return ({ row: oldest }, { row }) =>
    (areStepsFree || row.timestep === oldest.timestep) &&
    row.sample.dims.every((side, at) => side === oldest.sample.dims[at]) &&
    row.text.states.dims.every((side, at) => side === oldest.text.states.dims[at])
}

/** A signal that aborts when all waiting rows were cancelled. */
function abortedByAll(signals: readonly AbortSignal[]): AbortSignal {
  const unique = [...new Set(signals)]
  if (unique.length === 1) return unique[0] as AbortSignal
  const controller = new AbortController()
  for (const signal of unique) {
    const look = (): void => {
      if (unique.every(({ aborted }) => aborted)) controller.abort()
    }
    signal.addEventListener('abort', look, { once: true, signal: controller.signal })
  }
  return controller.signal
}

async function predictRows(
  runtime: Runtime,
  unet: ModelSession,
  rows: readonly UnetRow[],
  signal: AbortSignal,
): Promise<readonly Float32Array[]> {
  const all = (choose: (row: UnetRow) => Volume | undefined) =>
    stack(rows.flatMap((row) => choose(row) ?? []))
  const [found] = await runVolumes(
    runtime,
    unet,
    {
      sample: all(({ sample }) => sample),
      timestep: timestepsOf(unet, rows),
      encoder_hidden_states: all(({ text }) => text.states),
      timestep_cond: all(({ guidance }) => guidance),
      text_embeds: all(({ text }) => text.summary),
      time_ids: all(({ timeIds }) => timeIds),
    },
    { signal },
  )
  const { data } = found as Volume
  const length = data.length / rows.length
  return rows.map((_row, at) => data.slice(at * length, (at + 1) * length))
}

/** One timestep for all rows if they are the same, which every graph supports. */
function timestepsOf(unet: ModelSession, rows: readonly UnetRow[]): Volume {
  const steps = rows.map(({ timestep }) => timestep)
  const isScalar = inputOf(unet, 'timestep')?.dims.length === 0
  const data = Float32Array.from(new Set(steps).size === 1 ? steps.slice(0, 1) : steps)
  return { data, dims: isScalar ? [] : [data.length] }
}
