import type { ImageSize, Pixels, RedrawMask } from './pixels.ts'

/** One image to generate. */
export interface ImageRequest {
  readonly prompt: string
  readonly negativePrompt: string
  readonly seed: number
  /** Its index among the images of one request; each has its own noise. */
  readonly image: number
  readonly steps: number
  /** 1 and below disable guidance. */
  readonly guidance: number
  /** A size returned by `sizeFor`; the native size when absent. */
  readonly size?: ImageSize
  /** The source image at that size; pure noise when absent. */
  readonly source?: {
    readonly pixels: Pixels
    /** 1 where the image is regenerated; everywhere when absent. */
    readonly mask?: RedrawMask
    /** The share of the denoising steps that is applied to the source, 0 to 1. */
    readonly strength: number
  }
  /** Replaces the drawn noise. */
  readonly startNoise?: Float32Array
}

/** The abort signal and the progress callback of an image. */
export interface ImageTools {
  readonly signal: AbortSignal
  /** Called after each run of the U-Net, which waits for it. */
  onStep?(drawn: DrawnStep): void | Promise<void>
}

/** An image after a run of the U-Net. */
export interface DrawnStep {
  /** 1, 2, … counting the runs of the image. */
  readonly step: number
  readonly latents: Float32Array
  /** The noise-free latents that the U-Net currently predicts. */
  clean(): Float32Array
}
