interface Common {
  readonly n: number
  readonly width: number
  readonly height: number
  readonly seed: number
  /** The worker writes its PNG files as `<outputPrefix>/<name>.png`, one per picture. */
  readonly outputPrefix: string
  readonly steps?: number
  readonly guidanceScale?: number
  readonly negativePrompt?: string
}

/** One request for pictures; source pictures are keys in object storage. */
export type ImageInput = Common &
  (
    | { readonly task: 'generate'; readonly prompt: string }
    | {
        readonly task: 'edit'
        readonly prompt: string
        readonly imageKey: string
        /** Transparent areas of the mask are redrawn; without one, those of the picture itself. */
        readonly maskKey?: string
        readonly strength?: number
      }
    | { readonly task: 'variation'; readonly imageKey: string; readonly strength?: number }
  )

/** What was drawn. */
export interface ImageResult {
  /** Keys of the PNG files in object storage, in order. */
  readonly imageKeys: readonly string[]
}
