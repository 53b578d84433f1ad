import type { WhisperFiles } from './whisper-files.ts'

/** A head of the decoder's cross-attention that follows the speech. */
export interface AlignmentHead {
  readonly layer: number
  readonly head: number
}

/** The heads that time words, or the reason why there are none. */
type FoundHeads = { readonly heads: readonly AlignmentHead[] } | { readonly reason: string }

// Prompt, end and half of the context must fit into the context.
const CONTEXT_MIN = 16

/**
 * The alignment heads that `generation_config.json` lists, or all heads of the upper half of the
 * layers, which Whisper's code uses without a list. Wrong lists are common in fine-tuned models
 * that copied the file of another size; such a model transcribes without word times.
 */
export function findAlignmentHeads(
  { alignment, contextLength }: Pick<WhisperFiles, 'alignment' | 'contextLength'>,
  attentionLayers: ReadonlySet<number>,
): FoundHeads {
  const { listed, layers, headsPerLayer, medianWidth } = alignment
  if (attentionLayers.size === 0) return { reason: 'the decoder returns no cross-attentions' }
  if (contextLength < CONTEXT_MIN) return { reason: 'the context of the decoder is too short' }
  if (medianWidth % 2 === 0) return { reason: 'median_filter_width is even' }
  const heads = listed === undefined ? upperHalf(layers, headsPerLayer) : parseHeads(listed)
  if (heads === undefined || heads.length === 0 || heads.length > layers * headsPerLayer) {
    return { reason: 'alignment_heads is not a list of pairs of layer and head' }
  }
  for (const { layer, head } of heads) {
    if (layer >= layers || head >= headsPerLayer) {
      return { reason: `alignment_heads names head ${head} of layer ${layer}, which do not exist` }
    }
    if (!attentionLayers.has(layer)) {
      return { reason: `the decoder does not return cross_attentions.${layer}` }
    }
  }
  return { heads }
}

function upperHalf(layers: number, headsPerLayer: number): AlignmentHead[] {
  const first = Math.floor(layers / 2)
  return Array.from({ length: (layers - first) * headsPerLayer }, (_, index) => ({
    layer: first + Math.floor(index / headsPerLayer),
    head: index % headsPerLayer,
  }))
}

function parseHeads(listed: unknown): AlignmentHead[] | undefined {
  if (!Array.isArray(listed)) return undefined
  const heads: AlignmentHead[] = []
  for (const pair of listed as readonly unknown[]) {
    const [layer, head, ...rest] = Array.isArray(pair) ? (pair as readonly unknown[]) : []
    if (!isIndex(layer) || !isIndex(head) || rest.length > 0) return undefined
    heads.push({ layer, head })
  }
  return heads
}

function isIndex(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}
