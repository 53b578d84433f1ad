import { defined } from '#shared/json.ts'
import { readOperators } from '#workers/graph/operators.ts'
import { openImage, PROMPT_IMAGE_FORMATS } from '#workers/image/image-file.ts'
import { IMAGE_LIMITS, PreparationPool } from '#workers/preparation/thread-pool.ts'
import { WorkBudget } from '#workers/preparation/work-budget.ts'
import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'
import { ImageEncoder } from '#workers/vision/image-encoder.ts'
import type { PixelValues } from '#workers/vision/pixel-values.ts'
import { readTowerRules, type TowerRules } from '#workers/vision/tower-rules.ts'
import { layoutWithin } from '#workers/vision/vision-model.ts'

import { Batcher } from './batcher.ts'
import { type ImagePooling, poolImages } from './image-pooling.ts'
import { towerOf } from './joint-towers.ts'

/** A graph that computes one row of numbers per image; images of all requests share its batches. */
export interface ImageTower {
  /** The number of tokens that an image counts as. */
  readonly tokensPerImage: number
  /** The elements of a row; undefined if the graph does not state them. */
  readonly width: number | undefined
  readonly waitingCount: number
  /** The row of an image's file. Throws `invalidRequest` naming its field. */
  encode(bytes: Buffer, options: EncodeOptions): Promise<Float32Array>
  close(): Promise<void>
}

interface EncodeOptions {
  /** The field of the image. */
  readonly param: string
  readonly signal: AbortSignal
}

/** Options of an image tower. */
export interface TowerOptions {
  readonly runtime: Runtime
  readonly folder: string
  readonly file: string
  readonly session?: SessionOptions
  /**
   * Names of outputs `[batch, width]`, or `last_hidden_state` of any shape, which is pooled; the
   * first one that the graph has is read.
   */
  readonly outputs: readonly string[]
  readonly pooling?: ImagePooling['mode']
  /** The elements of a row; any number if undefined. */
  readonly width: number | undefined
  /** Receives the size of every batch. */
  readonly onBatch?: (size: number) => void
}

/** Outputs with a vector of each image, best first. */
export const IMAGE_OUTPUTS = [
  'image_embeds',
  'pooler_output',
  // The next two are outputs of jina-clip-v2.
  'image_embeddings',
  'l2norm_image_embeddings',
]

/** Larger batches gain nothing on processors. */
const BATCH_SIZE_MAX = 4

/** Loads a graph that reads images. Throws `ModelLoadError`. */
export async function openImageTower(options: TowerOptions): Promise<ImageTower> {
  const rules = await readTowerRules(options.folder)
  const source = await towerOf(options.file, options.outputs)
  const session = await options.runtime.load(source, options.session)
  return closeOnFailure(session, () => assemble(options, session, rules))
}

async function assemble(
  { runtime, file, outputs, width, pooling: mode, onBatch }: TowerOptions,
  session: ModelSession,
  rules: TowerRules,
): Promise<ImageTower> {
  const output = findOutput(session, outputs, width)
  checkSides(session, rules)
  const encoder = new ImageEncoder(runtime, session, {
    size: width,
    outputName: output.name,
    reduce: (values, dims) => poolImages(values, dims, { mode, patches: rules.tokensPerImage }),
  })
  const own = output.dims[output.dims.length === 3 ? 2 : 1]
  const { hasDynamicQuantization } = await readOperators(file)
  const isSingle = hasDynamicQuantization || typeof pixelsOf(session)?.dims[0] === 'number'
  const pool = new PreparationPool(IMAGE_LIMITS)
  const batcher = new Batcher<PixelValues, Float32Array>({
    maxBatchSize: isSingle ? 1 : BATCH_SIZE_MAX,
    maxBatchTokens: BATCH_SIZE_MAX,
    onBatch,
    lengthOf: () => 1,
    run: (images) => encodeAll(encoder, images),
  })
  return {
    tokensPerImage: rules.tokensPerImage,
    width: typeof own === 'number' ? own : width,
    get waitingCount() {
      return batcher.waitingCount
    },
    async encode(bytes, { param, signal }) {
      const size = await openImage(bytes, param, PROMPT_IMAGE_FORMATS)
      const layout = layoutWithin(param, () => rules.layout(size))
      const task = { kind: 'image', bytes, param, layout, settings: rules.pixels } as const
      const pixels = await pool.run(task, { param, budget: new WorkBudget(), signal })
      return batcher.submit(pixels, signal)
    },
    close: () => encoder.close(),
  }
}

/** The output with one row per image, or with the features of each. */
function findOutput(
  { file, outputs }: ModelSession,
  names: readonly string[],
  width: number | undefined,
): ModelSession['outputs'][number] {
  const found = names.flatMap((name) => outputs.filter((spec) => spec.name === name))[0]
  const isPooled = found?.name === 'last_hidden_state' && [3, 4].includes(found.dims.length)
  if (found === undefined || (found.dims.length !== 2 && !isPooled)) {
    throw new ModelLoadError(
      file,
      `it does not return one row of numbers for each image in ${names.join(' or ')}`,
    )
  }
  const own = found.dims[1]
  if (typeof own === 'number' && width !== undefined && own !== width) {
    throw new ModelLoadError(file, `${found.name} of images has ${own} elements, not ${width}`)
  }
  return found
}

function pixelsOf({ inputs }: ModelSession): ModelSession['inputs'][number] | undefined {
  return inputs.find(({ name, dims }) => name === 'pixel_values' && dims.length === 4)
}

/** Throws if a graph reads images of another size than its folder states. */
function checkSides(session: ModelSession, { layout }: TowerRules): void {
  const [, , height, width] = pixelsOf(session)?.dims ?? []
  const { tile } = layout({ width: 1, height: 1 })
  const isAs = (side: unknown, own: number): boolean => typeof side !== 'number' || side === own
  if (isAs(height, tile.height) && isAs(width, tile.width)) return
  throw new ModelLoadError(
    session.file,
    `it reads images of ${width}×${height}, and preprocessor_config.json makes ${tile.width}×${tile.height}`,
  )
}

async function encodeAll(
  encoder: ImageEncoder,
  images: readonly PixelValues[],
): Promise<readonly Float32Array[]> {
  const { data: first, dims } = defined(images[0])
  const data = new Float32Array(first.length * images.length)
  for (const [index, image] of images.entries()) data.set(image.data, index * first.length)
  const rows = await encoder.encode({ data, dims: [images.length, ...dims.slice(1)] })
  const size = rows.length / images.length
  return images.map((_, index) => rows.slice(index * size, (index + 1) * size))
}
