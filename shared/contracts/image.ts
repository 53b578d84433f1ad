/** The file type of generated images; PNG files are lossless. */
export type ImageFormat = 'png' | 'jpeg' | 'webp'

interface Common {
  readonly n: number
  readonly width: number
  readonly height: number
  readonly seed: number
  /** The worker writes files as `<outputPrefix>/<name>.<format>`, one per image. */
  readonly outputPrefix: string
  /** PNG if absent. */
  readonly format?: ImageFormat
  /** From 0 to 100, for JPEG and WebP; the encoder's default if absent. */
  readonly quality?: number
  readonly steps?: number
  readonly guidanceScale?: number
  readonly negativePrompt?: string
  /** How often each image is reported while it is drawn; never if absent. */
  readonly partialImages?: number
}

/** A request for images; source images are keys in object storage. */
export type ImageInput = Common &
  (
    | { readonly task: 'generate'; readonly prompt: string }
    | {
        readonly task: 'edit'
        readonly prompt: string
        readonly imageKey: string
        /**
         * Transparent areas of the mask are regenerated; without a mask, those of the image itself,
         * or all of an image without an alpha channel.
         */
        readonly maskKey?: string
        readonly strength?: number
      }
    | { readonly task: 'variation'; readonly imageKey: string; readonly strength?: number }
  )

/** An unfinished image, drawn as the model currently predicts it. */
export interface PartialImage {
  /** The index of the image in its job. */
  readonly image: number
  /** 0, 1, … within one image. */
  readonly index: number
  /** The key of its file in object storage. */
  readonly key: string
}

/** The generated images. */
export interface ImageResult {
  /** Keys of the files in object storage, in order. */
  readonly imageKeys: readonly string[]
}
