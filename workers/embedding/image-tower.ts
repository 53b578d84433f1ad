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
import { normalize } from './pooling.ts'

/** The graph that makes vectors of images; those of all requests share its batches. */
export interface ImageTower {
  /** What an image counts as. */
  readonly tokensPerImage: number
  readonly waitingCount: number
  /** The vector of an image's file, of length 1. Throws `invalidRequest` naming its field. */
  embed(bytes: Buffer, options: EmbedOptions): Promise<Float32Array>
  close(): Promise<void>
}

interface EmbedOptions {
  /** The field of the image. */
  readonly param: string
  readonly signal: AbortSignal
}

interface TowerOptions {
  readonly runtime: Runtime
  readonly folder: string
  readonly file: string
  readonly session?: SessionOptions
  /** Of the vectors of texts; undefined where their graph does not say. */
  readonly dimensions: number | undefined
  /** Receives the size of every batch. */
  readonly onBatch?: (size: number) => void
}

const VECTORS = ['image_embeds', 'pooler_output']
/** Larger batches gain nothing on processors. */
const BATCH_SIZE_MAX = 4

/** Loads the tower of images of a model. Throws `ModelLoadError`. */
export async function openImageTower(options: TowerOptions): Promise<ImageTower> {
  const rules = await readTowerRules(options.folder)
  const session = await options.runtime.load(options.file, options.session)
  return closeOnFailure(session, () => assemble(options, session, rules))
}

async function assemble(
  { runtime, file, dimensions, onBatch }: TowerOptions,
  session: ModelSession,
  rules: TowerRules,
): Promise<ImageTower> {
  const outputName = vectorOf(session, dimensions)
  checkSides(session, rules)
  const encoder = new ImageEncoder(runtime, session, { size: dimensions, outputName })
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
    get waitingCount() {
      return batcher.waitingCount
    },
    async embed(bytes, { param, signal }) {
      const size = await openImage(bytes, param, PROMPT_IMAGE_FORMATS)
      const layout = layoutWithin(param, () => rules.layout(size))
      const task = { kind: 'image', bytes, param, layout, settings: rules.pixels } as const
      const pixels = await pool.run(task, { param, budget: new WorkBudget(), signal })
      return normalize(await batcher.submit(pixels, signal))
    },
    close: () => encoder.close(),
  }
}

/** The output that is one vector of each image. */
function vectorOf({ file, outputs }: ModelSession, dimensions: number | undefined): string {
  const found = VECTORS.flatMap((name) => outputs.filter((spec) => spec.name === name))[0]
  if (found === undefined || found.dims.length !== 2) {
    throw new ModelLoadError(file, `not an encoder of images: it needs ${VECTORS.join(' or ')}`)
  }
  const own = found.dims[1]
  if (typeof own === 'number' && dimensions !== undefined && own !== dimensions) {
    throw new ModelLoadError(
      file,
      `vectors of images have ${own} dimensions, those of texts ${dimensions}`,
    )
  }
  return found.name
}

function pixelsOf({ inputs }: ModelSession): ModelSession['inputs'][number] | undefined {
  return inputs.find(({ name, dims }) => name === 'pixel_values' && dims.length === 4)
}

/** Throws where a graph reads images of another size than its folder says. */
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
  const vectors = await encoder.encode({ data, dims: [images.length, ...dims.slice(1)] })
  const size = vectors.length / images.length
  return images.map((_, index) => vectors.slice(index * size, (index + 1) * size))
}
