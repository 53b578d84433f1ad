import { FAMILIES, type Family } from './families.ts'
import { type Rotation, readRotation } from './rotary.ts'
import { Settings } from './settings.ts'

type Json = Readonly<Record<string, unknown>>

/** The dimensions and options of a decoder's graph, besides its weights. */
export interface DecoderShape {
  readonly architecture: string
  readonly family: Family
  readonly layers: readonly LayerShape[]
  readonly hiddenSize: number
  readonly innerSize: number
  readonly vocabSize: number
  readonly numHeads: number
  readonly numCacheHeads: number
  readonly headDim: number
  /** The number of positions that the model was made for. */
  readonly positions: number
  readonly epsilon: number
  readonly activation: Activation
  readonly scoreScale: number
  readonly scoreCap: number | undefined
  readonly logitCap: number | undefined
  readonly embeddingMultiplier: number
  readonly residualMultiplier: number
  readonly logitMultiplier: number
  /** Undefined if config.json does not state whether the head shares the embedding table. */
  readonly isTied: boolean | undefined
  readonly hasBias: (module: string) => boolean
}

interface LayerShape {
  readonly window: number | undefined
  /** Layers with the same rotation share the object. Undefined for layers without rotation. */
  readonly rotation: Rotation | undefined
}

/** Activations of gates. */
type Activation = 'silu' | 'geluTanh' | 'gelu'

const ACTIVATIONS: Readonly<Record<string, Activation>> = {
  silu: 'silu',
  swish: 'silu',
  gelu: 'gelu',
  gelu_new: 'geluTanh',
  gelu_fast: 'geluTanh',
  gelu_pytorch_tanh: 'geluTanh',
}

const LAYERS_MAX = 1000
const SIZE_MAX = 1 << 18
const HEADS_MAX = 4096
const VOCABULARY_MAX = 4_000_000
const POSITIONS_MAX = 1 << 23

/**
 * Reads the decoder's properties from config.json. Throws `ModelLoadError` for architectures and
 * settings that cannot be converted exactly.
 */
export function readDecoderShape(folder: string, config: Json): DecoderShape {
  const { architecture, family } = findFamily(folder, config)
  // Models of images and text keep the settings of the decoder in a group.
  const inner = config.text_config as Json | undefined
  const values = { ...config, ...inner }
  const settings = new Settings(folder, values, family.fallbacks)
  refuseQuantized(settings)
  refuseBidirectional(settings)
  const numHeads = settings.count('num_attention_heads', { max: HEADS_MAX })
  const numCacheHeads = settings.count('num_key_value_heads', {
    max: HEADS_MAX,
    fallback: numHeads,
  })
  if (numHeads % numCacheHeads !== 0) {
    throw settings.fault('num_key_value_heads', `a divisor of the ${numHeads} heads`)
  }
  const hiddenSize = settings.count('hidden_size', { max: SIZE_MAX })
  const headDim = settings.count('head_dim', {
    max: SIZE_MAX,
    fallback: Math.floor(hiddenSize / numHeads),
  })
  const positions = settings.count('max_position_embeddings', { max: POSITIONS_MAX })
  const multipliers = family.multipliers?.(settings) ?? {}
  const { softcaps = {} } = family
  const capOf = (name: string | undefined) => name && settings.findPositive(name)
  return {
    architecture,
    family,
    hiddenSize,
    numHeads,
    numCacheHeads,
    headDim,
    positions,
    innerSize: settings.count('intermediate_size', { max: SIZE_MAX }),
    vocabSize: settings.count('vocab_size', { max: VOCABULARY_MAX }),
    epsilon: settings.positive('rms_norm_eps', 1e-6),
    activation: readActivation(family, settings),
    scoreScale: family.scoreScale?.(settings) ?? 1 / Math.sqrt(headDim),
    scoreCap: capOf(softcaps.scores) || undefined,
    logitCap: capOf(softcaps.logits) || undefined,
    embeddingMultiplier: multipliers.embedding ?? 1,
    residualMultiplier: multipliers.residual ?? 1,
    logitMultiplier: multipliers.logits ?? 1,
    isTied: settings.has('tie_word_embeddings') ? settings.isOn('tie_word_embeddings') : undefined,
    hasBias: (module) => family.hasBias(settings, module),
    layers: readLayers(family, settings, { headDim, positions }),
  }
}

function findFamily(
  folder: string,
  config: Json,
): { readonly architecture: string; readonly family: Family } {
  const { architectures } = config
  const settings = new Settings(folder, config)
  if (!Array.isArray(architectures) || typeof architectures[0] !== 'string') {
    throw settings.fault('architectures', 'the name of a class such as LlamaForCausalLM')
  }
  const [architecture] = architectures as string[]
  const family =
    architecture !== undefined && Object.hasOwn(FAMILIES, architecture)
      ? FAMILIES[architecture]
      : undefined
  if (architecture !== undefined && family !== undefined) return { architecture, family }
  const known = Object.keys(FAMILIES).join(', ')
  throw settings.refusal(`the architecture ${architecture} cannot be converted, but ${known} can`)
}

function refuseQuantized(settings: Settings): void {
  const group =
    settings.findGroup('quantization_config') ?? settings.findGroup('compression_config')
  if (group === undefined) return
  const method = group.findText('quant_method') ?? 'an unnamed method'
  throw settings.refusal(
    `the weights are quantized already (${method}): convert the repository with the original ones`,
  )
}

function refuseBidirectional(settings: Settings): void {
  if (!settings.isOn('use_bidirectional_attention', false)) return
  throw settings.fault('use_bidirectional_attention', 'false: the attention must be causal')
}

function readActivation(family: Family, settings: Settings): Activation {
  const name = family.activation(settings)
  const found = Object.hasOwn(ACTIVATIONS, name) ? ACTIVATIONS[name] : undefined
  if (found !== undefined) return found
  throw settings.refusal(`config.json: the activation ${name} is not supported`)
}

function readLayers(
  family: Family,
  settings: Settings,
  { headDim, positions }: { readonly headDim: number; readonly positions: number },
): LayerShape[] {
  const layers = settings.count('num_hidden_layers', { max: LAYERS_MAX })
  const known = new Map<string, Rotation>()
  return Array.from({ length: layers }, (_, layer) => {
    const place = { layer, layers }
    const window = family.window(settings, place)
    if (family.rotates?.(settings, place) === false) return { window, rotation: undefined }
    const kind = window === undefined ? 'full_attention' : 'sliding_attention'
    const rotation = known.get(kind) ?? rotationOf(settings, { family, kind, headDim, positions })
    known.set(kind, rotation)
    return { window, rotation }
  })
}

/** The rotation of layers with or without a window, in the old or the new style of config.json. */
function rotationOf(
  settings: Settings,
  options: {
    readonly family: Family
    readonly kind: string
    readonly headDim: number
    readonly positions: number
  },
): Rotation {
  const { family, kind, headDim, positions } = options
  const stated = settings.findGroup('rope_parameters') ?? settings.findGroup('rope_scaling')
  const nested = stated?.findGroup(kind)
  const isLocal = family.localBase !== undefined && kind === 'sliding_attention'
  const own = nested ?? (isLocal ? undefined : stated)
  const usualBase = settings.positive(
    isLocal && family.localBase ? family.localBase : 'rope_theta',
    10_000,
  )
  const base = own?.findPositive('rope_theta') ?? usualBase
  const share =
    own?.findPositive('partial_rotary_factor') ??
    settings.findPositive('partial_rotary_factor') ??
    1
  const width = Math.floor(headDim * share)
  if (width < 2 || width % 2 !== 0 || width > headDim) {
    throw settings.refusal(`config.json: ${width} of the ${headDim} elements of a head are rotated`)
  }
  const original = settings.findPositive('original_max_position_embeddings')
  const rope = (own ?? settings.none()).with(
    original === undefined ? {} : { original_max_position_embeddings: original },
  )
  return readRotation(rope, { base, width, positions, isPhi: family.isFused === true })
}
