import type { GrammarData } from '#workers/sampling/constraint/grammar-data.ts'
import type { PromptSource, ReadOptions, ReadPrompt } from '#workers/text/text-model.ts'
import type { ImageLayout, PixelSettings } from '#workers/vision/image-layout.ts'
import type { PixelValues } from '#workers/vision/pixel-values.ts'

/** The tasks of a preparation thread. */
export type PreparationTask =
  | { readonly kind: 'grammar'; readonly plan: string }
  | {
      readonly kind: 'prompt'
      /** The model folder, whose tokenizer and template the thread loads once. */
      readonly folder: string
      readonly source: PromptSource
      readonly options: ReadOptions
      /** Remaining steps in the budget of the request. */
      readonly stepsMax: number
    }
  | {
      readonly kind: 'image'
      /** The file of an image. */
      readonly bytes: Uint8Array
      readonly param: string
      readonly layout: ImageLayout
      readonly settings: PixelSettings
    }

/** The result of a task of each kind. */
export interface PreparationResults {
  readonly grammar: GrammarData
  readonly prompt: ReadPrompt
  readonly image: PixelValues
}

/** The reply of a thread. */
export type ThreadReply =
  | { readonly result: PreparationResults[PreparationTask['kind']]; readonly steps: number }
  | { readonly refusal: { readonly message: string; param: string | null; code: string | null } }
  | { readonly failure: string }
