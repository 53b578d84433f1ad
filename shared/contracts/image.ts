interface Common {
  readonly n: number
  readonly width: number
  readonly height: number
  readonly seed: number
  /** The worker writes PNG files as `<outputPrefix>/<name>.png`, one per image. */
  readonly outputPrefix: string
  readonly steps?: number
  readonly guidanceScale?: number
  readonly negativePrompt?: string
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
         * Transparent areas of the mask are regenerated; without a mask, those of the image itself.
         */
        readonly maskKey?: string
        readonly strength?: number
      }
    | { readonly task: 'variation'; readonly imageKey: string; readonly strength?: number }
  )

/** The generated images. */
export interface ImageResult {
  /** Keys of the PNG files in object storage, in order. */
  readonly imageKeys: readonly string[]
}
