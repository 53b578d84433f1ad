import type { XlFiles } from './diffusion-files.ts'
import type { ImageSize } from './pixels.ts'
import type { EncodedPrompt } from './prompt-encoder.ts'
import { embedGuidance } from './step-defaults.ts'
import type { RowCondition } from './unet.ts'

/** The conditions under which an image is drawn. */
export interface Condition {
  /** The prompt's row last; with guidance, that of the negative prompt before it. */
  readonly rows: readonly RowCondition[]
  readonly guidance: number
}

// The scores that diffusers gives the refiner of Stable Diffusion XL.
const AESTHETICS = { wanted: 6, unwanted: 2.5 }

/** The conditions of an image, with and without guidance. */
export async function conditionOf(
  { xl, guidanceWidth }: { xl: XlFiles | undefined; guidanceWidth: number | undefined },
  request: {
    readonly prompt: string
    readonly negativePrompt: string
    readonly guidance: number
    readonly size: ImageSize
  },
  encode: (text: string) => Promise<EncodedPrompt>,
): Promise<Condition> {
  const { prompt, negativePrompt, guidance, size } = request
  const timeIds = (kind: keyof typeof AESTHETICS) =>
    xl === undefined ? {} : { timeIds: sizeConditions(xl, size, AESTHETICS[kind]) }
  const wanted = { text: await encode(prompt), ...timeIds('wanted') }
  if (guidanceWidth !== undefined) {
    const data = embedGuidance(guidance, guidanceWidth)
    return { rows: [{ ...wanted, guidance: { data, dims: [1, data.length] } }], guidance }
  }
  if (guidance <= 1 || prompt === negativePrompt) return { rows: [wanted], guidance }
  const unwanted = { text: await encode(negativePrompt), ...timeIds('unwanted') }
  return { rows: [unwanted, wanted], guidance }
}

/**
 * Podell et al. 2023, section 2.2: the size of the image in training, its crop from above and left,
 * and the size to draw (or the aesthetic score). Here: an image of its size, uncropped.
 */
function sizeConditions({ sizeConditions: kind }: XlFiles, size: ImageSize, aesthetics: number) {
  const { height, width } = size
  const last = kind === 'size' ? [height, width] : [aesthetics]
  const values = [height, width, 0, 0, ...last]
  return { data: Float32Array.from(values), dims: [1, values.length] }
}
