import { createHash } from 'node:crypto'

import type { MessageImage } from '#shared/contracts/completion.ts'
import { CancelledError, failure } from '#shared/errors.ts'
import { Turns } from '#shared/turns.ts'
import { openImage, PROMPT_IMAGE_FORMATS } from '#workers/image/image-file.ts'
import { IMAGE_LIMITS, PreparationPool } from '#workers/preparation/thread-pool.ts'
import { WorkBudget } from '#workers/preparation/work-budget.ts'
import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'

import type { Placeholder, VisionRules } from './families.ts'
import { FeatureCache } from './feature-cache.ts'
import { ImageEncoder } from './image-encoder.ts'
import type { ImageLayout, Mark } from './image-layout.ts'
import { ImageShapeError } from './processor-file.ts'

const CACHE_BYTES_MAX = 256 * 1024 ** 2
/** One image is prepared while another is encoded. */
const IMAGES_AT_ONCE = 2

/** An image of a prompt: its marks, and its embeddings. */
export interface PromptImage {
  readonly marks: readonly Mark[]
  readonly grid: ImageLayout['grid']
  /** A negative hash of its content, which differs between images. */
  readonly id: number
  /** Computed once per image, or taken from the cache of a scope. */
  encode(options: { readonly scope: string; readonly signal: AbortSignal }): Promise<Float32Array>
}

/** The parts with which a language model reads images. */
export interface VisionModel {
  /** The token at the positions of embeddings. */
  readonly imageTokenId: number
  /** The placeholder of each image in a prompt before it is expanded. */
  readonly placeholder: Placeholder
  /** Checks and lays out the file of an image. Throws `invalidRequest` naming its field. */
  read(bytes: Buffer, image: Pick<MessageImage, 'path' | 'detail'>): Promise<PromptImage>
  close(): Promise<void>
}

/** Loads the image encoder of a model. Throws `ModelLoadError`. */
export async function openVisionModel(options: {
  readonly runtime: Runtime
  readonly encoderFile: string
  readonly session: SessionOptions
  /** Elements of an embedding of the decoder. */
  readonly embeddingSize: number
  readonly rules: VisionRules
}): Promise<VisionModel> {
  const { runtime, encoderFile, embeddingSize, rules } = options
  const session = await runtime.load(encoderFile, options.session)
  return closeOnFailure(session, () => {
    return new LoadedVision(
      rules,
      new ImageEncoder(runtime, session, { size: embeddingSize }),
      embeddingSize,
    )
  })
}

class LoadedVision implements VisionModel {
  readonly #rules: VisionRules
  readonly #encoder: ImageEncoder
  readonly #embeddingSize: number
  readonly #cache = new FeatureCache(CACHE_BYTES_MAX)
  readonly #pool = new PreparationPool(IMAGE_LIMITS)
  readonly #turns = new Turns(IMAGES_AT_ONCE)

  constructor(rules: VisionRules, encoder: ImageEncoder, embeddingSize: number) {
    this.#rules = rules
    this.#encoder = encoder
    this.#embeddingSize = embeddingSize
  }

  get imageTokenId(): number {
    return this.#rules.imageTokenId
  }

  get placeholder(): Placeholder {
    return this.#rules.placeholder
  }

  async read(
    bytes: Buffer,
    { path, detail = 'high' }: Pick<MessageImage, 'path' | 'detail'>,
  ): Promise<PromptImage> {
    const size = await openImage(bytes, path, PROMPT_IMAGE_FORMATS)
    const layout = layoutWithin(path, () => this.#rules.layout(size, detail))
    const digest = createHash('sha256').update(bytes).update(JSON.stringify(layout.sizes)).digest()
    const key = digest.toString('base64')
    return {
      marks: layout.marks,
      grid: layout.grid,
      // 52 bits, which numbers represent exactly; a collision between two images of a text is
      // negligible.
      id: -1 - Number(digest.readBigUInt64BE() >> 12n),
      encode: async ({ scope, signal }) => {
        if (signal.aborted) throw new CancelledError()
        // Other requests may wait for the same image, so its computation does not end with this
        // one.
        const embeddings = await this.#cache.get(`${scope}\0${key}`, () => {
          return this.#turns.run(() => this.#compute(bytes, layout, path))
        })
        if (signal.aborted) throw new CancelledError()
        return embeddings
      },
    }
  }

  async close(): Promise<void> {
    await this.#encoder.close()
  }

  async #compute(bytes: Buffer, layout: ImageLayout, param: string): Promise<Float32Array> {
    const { pixels: settings } = this.#rules
    const task = { kind: 'image', bytes, param, layout, settings } as const
    const pixels = await this.#pool.run(task, { param, budget: new WorkBudget() })
    const embeddings = await this.#encoder.encode(pixels)
    const count = embeddings.length / this.#embeddingSize
    const expected = countEmbeddings(layout.marks)
    if (count === expected) return embeddings
    throw new Error(`the image encoder makes ${count} embeddings of an image, not ${expected}`)
  }
}

/** The number of embeddings in the marks. */
function countEmbeddings(marks: readonly Mark[]): number {
  const countOf = (mark: Mark): number =>
    typeof mark !== 'string' && 'embeddings' in mark ? mark.embeddings : 0
  return marks.reduce((sum, mark) => sum + countOf(mark), 0)
}

/** The layout of an image. Throws `invalidRequest` naming the field for an unsupported shape. */
export function layoutWithin(param: string, layout: () => ImageLayout): ImageLayout {
  try {
    return layout()
  } catch (cause) {
    if (!(cause instanceof ImageShapeError)) throw cause
    throw failure.invalidRequest(`The image cannot be read: ${cause.message}.`, {
      param,
      code: 'invalid_image',
      cause,
    })
  }
}
