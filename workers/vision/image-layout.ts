import type { KernelName } from './resample.ts'

/** Width and height in pixels. */
export interface ImageSize {
  readonly width: number
  readonly height: number
}

/** The tokens of an image in a prompt: text, one token, or positions of its embeddings. */
export type Mark = string | { readonly tokenId: number } | { readonly embeddings: number }

/** The processing and tokens of an image of one size. */
export interface ImageLayout {
  /** Sizes to which it is resized, one after another. */
  readonly sizes: readonly ImageSize[]
  /** Parts of the last size that the encoder reads, all of one size; each is centred at `at`. */
  readonly tiles: readonly { readonly x: number; readonly y: number }[]
  readonly tile: ImageSize
  /** The whole image in the size of a tile comes last. */
  readonly hasOverview: boolean
  readonly marks: readonly Mark[]
  /** Rows and columns of its embeddings, if positions in a text depend on them. */
  readonly grid?: { readonly rows: number; readonly columns: number }
}

/** How images become the input of an encoder; plain data, so that it can cross to a thread. */
export interface PixelSettings {
  readonly kernel: KernelName
  readonly scale: number
  readonly mean: readonly number[]
  readonly std: readonly number[]
  /** Channels are blue, green and red. */
  readonly isBlueFirst?: boolean
  /** For encoders that read patches: the side of one, and how many sides make an embedding. */
  readonly patch?: {
    readonly side: number
    readonly merge: number
    readonly frames: number
  }
}
