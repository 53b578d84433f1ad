/** How the weights of a converted model are stored. */
export interface WeightForm {
  /** The type in which the graph computes. */
  readonly type: 'float32' | 'float16'
  /** Bits of quantized matrices; undefined for unquantized ones. */
  readonly bits?: 4 | 8
}

/** Formats by their name on the command line. */
export const WEIGHT_FORMS = {
  fp32: { type: 'float32' },
  fp16: { type: 'float16' },
  int8: { type: 'float32', bits: 8 },
  int4: { type: 'float32', bits: 4 },
} as const satisfies Readonly<Record<string, WeightForm>>

/** Elements of a row that share a scale. */
export const BLOCK_SIZE = 32

/** The embedding table and the head lose more than the layers, so they keep this many bits. */
export const HEAD_BITS = 8

/** The format with a name on the command line, if there is one. */
export function findWeightForm(name: string): WeightForm | undefined {
  return Object.hasOwn(WEIGHT_FORMS, name)
    ? WEIGHT_FORMS[name as keyof typeof WEIGHT_FORMS]
    : undefined
}
