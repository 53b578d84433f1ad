import type { Settings } from './settings.ts'

/** A layer of a decoder: its index, and the number of layers. */
interface LayerPlace {
  readonly layer: number
  readonly layers: number
}

/** The differences between decoder families. The graph is generated from this alone. */
export interface Family {
  /** Values of settings that config.json may omit. */
  readonly fallbacks?: Readonly<Record<string, unknown>>
  /** The norms of a layer by their place: before and after attention and the network after it. */
  readonly norms: {
    readonly beforeAttention?: string
    readonly afterAttention?: string
    readonly beforeNetwork?: string
    readonly afterNetwork?: string
  }
  /** Norms multiply by their weights plus one. */
  readonly addsOneToNorms?: boolean
  /** Norms of query and key: per head, or over all heads together. */
  readonly headNorms?: 'head' | 'projection'
  /** Query, key and value are one matrix; gate and up are another. */
  readonly isFused?: boolean
  /** Whether a linear layer, by its last name, has a bias. */
  readonly hasBias: (settings: Settings, module: string) => boolean
  /** The activation as config.json names it. */
  readonly activation: (settings: Settings) => string
  /** Positions that a layer sees; undefined for all. */
  readonly window: (settings: Settings, place: LayerPlace) => number | undefined
  /** Whether a layer rotates query and key. */
  readonly rotates?: (settings: Settings, place: LayerPlace) => boolean
  /** The setting of the rotary base of layers with a window, if they have their own. */
  readonly localBase?: string
  /** The factor of attention scores; 1 ÷ √head size when absent. */
  readonly scoreScale?: (settings: Settings) => number
  readonly multipliers?: (settings: Settings) => {
    readonly embedding?: number
    readonly residual?: number
    readonly logits?: number
  }
  /** Settings that bound scores and logits. */
  readonly softcaps?: { readonly scores?: string; readonly logits?: string }
  /** Activations exceed the range of half precision. */
  readonly exceedsHalf?: boolean
}

const POSITIONS_MAX = 1 << 24

const isAttention = (module: string): boolean => /^[qkvo]_proj$/.test(module)

const LLAMA: Family = {
  norms: { beforeAttention: 'input_layernorm', beforeNetwork: 'post_attention_layernorm' },
  hasBias: (settings, module) =>
    settings.isOn(isAttention(module) ? 'attention_bias' : 'mlp_bias', false),
  activation: (settings) => settings.findText('hidden_act') ?? 'silu',
  window: () => undefined,
}

const QWEN: Family = {
  ...LLAMA,
  window(settings, place) {
    if (!settings.isOn('use_sliding_window')) return undefined
    const first = settings.number('max_window_layers', 28)
    return windowOf(settings, place, ({ layer }) => layer >= first)
  },
}

const GEMMA: Family = {
  ...LLAMA,
  fallbacks: { head_dim: 256, tie_word_embeddings: true },
  addsOneToNorms: true,
  // Older files state `gelu` but mean its approximation.
  activation: (settings) => settings.findText('hidden_activation') ?? 'gelu_pytorch_tanh',
  multipliers: (settings) => ({ embedding: Math.sqrt(settings.positive('hidden_size')) }),
}

const GEMMA_2: Family = {
  ...GEMMA,
  norms: {
    beforeAttention: 'input_layernorm',
    afterAttention: 'post_attention_layernorm',
    beforeNetwork: 'pre_feedforward_layernorm',
    afterNetwork: 'post_feedforward_layernorm',
  },
  fallbacks: {
    ...GEMMA.fallbacks,
    query_pre_attn_scalar: 256,
    sliding_window: 4096,
    attn_logit_softcapping: 50,
    final_logit_softcapping: 30,
  },
  window: (settings, place) => windowOf(settings, place, ({ layer }) => layer % 2 === 0),
  scoreScale: (settings) => 1 / Math.sqrt(settings.positive('query_pre_attn_scalar')),
  softcaps: { scores: 'attn_logit_softcapping', logits: 'final_logit_softcapping' },
}

const GEMMA_3: Family = {
  ...GEMMA_2,
  fallbacks: {
    head_dim: 256,
    tie_word_embeddings: true,
    vocab_size: 262_208,
    rms_norm_eps: 1e-6,
    num_attention_heads: 8,
    num_key_value_heads: 4,
    max_position_embeddings: 131_072,
    query_pre_attn_scalar: 256,
    sliding_window: 4096,
    rope_theta: 1_000_000,
    rope_local_base_freq: 10_000,
  },
  headNorms: 'head',
  window(settings, place) {
    const stated = settings.findPositive('_sliding_window_pattern') ?? 6
    const pattern = settings.positive('sliding_window_pattern', stated)
    return windowOf(settings, place, ({ layer }) => (layer + 1) % pattern !== 0)
  },
  localBase: 'rope_local_base_freq',
  softcaps: { logits: 'final_logit_softcapping' },
  exceedsHalf: true,
}

/** Families by the name of their class in config.json (`architectures`). */
export const FAMILIES: Readonly<Record<string, Family>> = {
  LlamaForCausalLM: LLAMA,
  MistralForCausalLM: { ...LLAMA, hasBias: () => false, window: everywhere },
  Qwen2ForCausalLM: { ...QWEN, hasBias: (_, module) => /^[qkv]_proj$/.test(module) },
  Qwen3ForCausalLM: { ...QWEN, fallbacks: { head_dim: 128 }, headNorms: 'head' },
  GemmaForCausalLM: GEMMA,
  Gemma2ForCausalLM: GEMMA_2,
  Gemma3ForCausalLM: GEMMA_3,
  Gemma3ForConditionalGeneration: GEMMA_3,
  Phi3ForCausalLM: { ...LLAMA, isFused: true, hasBias: () => false, window: everywhere },
  SmolLM3ForCausalLM: {
    ...LLAMA,
    fallbacks: { rope_theta: 2_000_000, tie_word_embeddings: true },
    window(settings, place) {
      if (!settings.isOn('use_sliding_window')) return undefined
      return windowOf(settings, place, () => !rotatesMost(settings, place))
    },
    rotates: rotatesMost,
  },
  GraniteForCausalLM: {
    ...LLAMA,
    scoreScale: (settings) => settings.positive('attention_multiplier', 1),
    multipliers: (settings) => ({
      embedding: settings.positive('embedding_multiplier', 1),
      residual: settings.positive('residual_multiplier', 1),
      logits: 1 / settings.positive('logits_scaling', 1),
    }),
  },
  Olmo2ForCausalLM: {
    ...LLAMA,
    norms: {
      afterAttention: 'post_attention_layernorm',
      afterNetwork: 'post_feedforward_layernorm',
    },
    headNorms: 'projection',
  },
}

/** The window of every layer. */
function everywhere(settings: Settings): number | undefined {
  const window = settings.findPositive('sliding_window')
  return window === undefined ? undefined : settings.count('sliding_window', { max: POSITIONS_MAX })
}

/** The window of the layers that `layer_types` or the rule of the family names. */
function windowOf(
  settings: Settings,
  place: LayerPlace,
  isUsual: (place: LayerPlace) => boolean,
): number | undefined {
  const types = settings.findLayerList('layer_types', place.layers)
  const type = types?.[place.layer]
  if (types !== undefined && type !== 'sliding_attention' && type !== 'full_attention') {
    throw settings.refusal(`config.json: the layer type ${String(type)} is not supported`)
  }
  const isSliding = types === undefined ? isUsual(place) : type === 'sliding_attention'
  return isSliding ? everywhere(settings) : undefined
}

/** All layers except those at an interval; a list has 1 for layers that rotate. */
function rotatesMost(settings: Settings, { layer, layers }: LayerPlace): boolean {
  const interval = settings.positive('no_rope_layer_interval', 4)
  const list = settings.findLayerList('no_rope_layers', layers)
  return list === undefined ? (layer + 1) % interval !== 0 : list[layer] === 1
}
