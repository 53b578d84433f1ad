import { basename } from 'node:path'

import { isRecord } from '#shared/json.ts'
import { findModelFile } from '#workers/models/find-model-file.ts'
import { countIn, findJson, readJson } from '#workers/models/folder-json.ts'
import { readTokenizer } from '#workers/text/tokenizer-files/read-tokenizer.ts'

import { readsOf } from './joint-towers.ts'
import { type ModelLabels, readLabels } from './labels.ts'
import { readSentenceHead, type SentenceHead } from './sentence-head.ts'

/** The content of a folder in the sentence-transformers or plain hub layout. */
export interface EncoderFiles extends ModelLabels {
  readonly modelFile: string
  readonly tokenizerJson: object
  readonly tokenizerConfig: Json
  readonly contextLength: number
  /** The positions of the model, which the tokenizer's files may not fully use. */
  readonly positionsMax: number
  readonly paddingId: number
  /** The position of a text's first token, for graphs with a position input. */
  readonly firstPosition: number
  readonly head: SentenceHead
  /** Whether it is the text tower of a model that also has an image tower, like CLIP. */
  readonly isTower: boolean
  /** The length to which every text is padded, for models that also read padding. */
  readonly paddedLength: number | undefined
  /** Adapters that a request may choose from, each with the instruction before its texts. */
  readonly tasks: readonly EncoderTask[]
  /** The prefixes in the files of queries, of passages, and of texts without a role. */
  readonly prompts: { readonly query?: string; readonly passage?: string; readonly usual?: string }
  /** The id of the token for unknown words, if there is one. */
  readonly unknownId: number | undefined
  /** The token whose vector is read by classifiers with a decoder, such as BART and T5. */
  readonly endId: number | undefined
  /** Whether texts are rendered as messages of the chat template, as sentence-transformers does. */
  readonly rendersChats: boolean
  /** Whether the model was trained so that its leading dimensions are embeddings by themselves. */
  readonly isTruncatable: boolean
}

/** One adapter of a model with several. */
interface EncoderTask {
  readonly name: string
  readonly instruction: string
}

type Json = Readonly<Record<string, unknown>>

const CONTEXT_LENGTH_UNKNOWN = 512
const TOKEN_ID_MAX = 4_000_000
// Their positions start after the id of the padding token, which uses up part of the table.
const PADDED_POSITIONS = /^(xlm-roberta|roberta|camembert|mpnet|longformer|data2vec-text|ibert)/

/**
 * Reads an encoder's folder. The pooling mode is that of the catalogue, if it names one. Throws
 * `ModelLoadError` for a missing required file.
 */
export async function readEncoderFiles(
  folder: string,
  onnxFile?: string,
  pooling?: string,
): Promise<EncoderFiles> {
  const modelFile = await findModelFile(folder, onnxFile)
  const whole = await readJson(folder, 'config.json')
  const isTower =
    basename(modelFile).startsWith('text_model') ||
    (isRecord(whole.text_config) && (await readsOf(modelFile)).images)
  const config = isTower ? configOfTexts(whole) : whole
  const sentence = (await findJson(folder, 'sentence_bert_config.json')) ?? {}
  const { json: tokenizerJson, config: tokenizerConfig } = await readTokenizer(folder)
  const padding = { fallback: 0, min: 0, max: TOKEN_ID_MAX }
  const paddingId = isTower
    ? paddingIdOf(tokenizerJson, tokenizerConfig)
    : countIn(folder, config, 'pad_token_id', padding)
  const firstPosition = PADDED_POSITIONS.test(String(config.model_type)) ? paddingId + 1 : 0
  const contextLength = contextLengthOf(config, firstPosition, [tokenizerConfig, sentence])
  return {
    modelFile,
    isTower,
    paddedLength:
      isTower && READS_PADDING.test(String(whole.model_type)) ? contextLength : undefined,
    tokenizerJson: sentence.do_lower_case === true ? lowercased(tokenizerJson) : tokenizerJson,
    tokenizerConfig,
    contextLength,
    positionsMax: positionsOf(config, firstPosition) ?? contextLength,
    paddingId,
    firstPosition,
    head: isTower
      ? TOWER_HEAD
      : await readSentenceHead(folder, {
          pooling,
          fallback: isDecoder(config) ? 'lastToken' : 'mean',
        }),
    tasks: tasksOf(config),
    prompts: promptsOf(await findJson(folder, 'config_sentence_transformers.json')),
    unknownId: unknownIdOf(tokenizerJson),
    endId: endIdOf(config),
    ...readLabels(config),
    rendersChats: isRecord(sentence.modality_config) && 'message' in sentence.modality_config,
    isTruncatable:
      Array.isArray(config.matryoshka_dimensions) ||
      config.is_matryoshka === true ||
      sentence.truncate_dim !== undefined,
  }
}

// SigLIP uses the vector of the last token, which is padding, and its graph has no mask.
const READS_PADDING = /^siglip/
/** Default positions of models whose files omit them. */
const TOWER_POSITIONS: Readonly<Record<string, number>> = { clip: 77, siglip: 64, siglip2: 64 }
/** The graph computes the vector of a text; only directions are compared with those of images. */
const TOWER_HEAD: SentenceHead = {
  pooling: ['mean'],
  dense: [],
  isNormalized: true,
  isStated: false,
  problem: undefined,
}

/** Whether tokens only attend to earlier ones, so that only the last one has read all. */
function isDecoder({ architectures }: Json): boolean {
  return [architectures].flat().some((name) => String(name).endsWith('ForCausalLM'))
}

/** The text settings of a model of texts and images. */
function configOfTexts(config: Json): Json {
  const texts = isRecord(config.text_config) ? config.text_config : {}
  const { [String(config.model_type)]: positions } = TOWER_POSITIONS
  return { ...config, max_position_embeddings: positions, ...texts }
}

/** These files state only the padding token. */
function paddingIdOf({ added_tokens: added }: Json, { pad_token: padding }: Json): number {
  const content = isRecord(padding) ? padding.content : padding
  const tokens = Array.isArray(added) ? added.filter(isRecord) : []
  const id = tokens.find((token) => token.content === content)?.id
  return typeof id === 'number' ? id : 0
}

/** The shortest length that the files state; some tokenizers state 10³⁰ for no limit. */
function contextLengthOf(config: Json, firstPosition: number, others: readonly Json[]): number {
  const limits = [
    positionsOf(config, firstPosition),
    ...others.flatMap((file) => [file.max_seq_length, file.model_max_length]),
  ].filter((value): value is number => typeof value === 'number' && value > 0 && value < 1e6)
  return limits.length === 0 ? CONTEXT_LENGTH_UNKNOWN : Math.min(...limits)
}

function positionsOf(config: Json, firstPosition: number): number | undefined {
  const positions = config.max_position_embeddings ?? config.n_positions
  return typeof positions === 'number' ? positions - firstPosition : undefined
}

const TASKS_MAX = 64

/** In the format of Jina's configurations. */
function tasksOf({ lora_adaptations: names, task_instructions: texts }: Json): EncoderTask[] {
  if (!Array.isArray(names)) return []
  return names.slice(0, TASKS_MAX).map((name) => {
    const instruction = isRecord(texts) ? texts[String(name)] : undefined
    return { name: String(name), instruction: typeof instruction === 'string' ? instruction : '' }
  })
}

/** In the layout of sentence-transformers, which has two names for passages. */
function promptsOf(file: Json | undefined): EncoderFiles['prompts'] {
  const prompts = isRecord(file?.prompts) ? file.prompts : {}
  const [query, passage] = [prompts.query, prompts.document ?? prompts.passage]
  const name = file?.default_prompt_name
  const usual = typeof name === 'string' && Object.hasOwn(prompts, name) ? prompts[name] : ''
  return {
    ...(typeof query === 'string' && query !== '' && { query }),
    ...(typeof passage === 'string' && passage !== '' && { passage }),
    ...(typeof usual === 'string' && usual !== '' && { usual }),
  }
}

function endIdOf({ is_encoder_decoder: hasDecoder, eos_token_id: id }: Json): number | undefined {
  return hasDecoder === true && typeof id === 'number' ? id : undefined
}

function unknownIdOf({ model }: Json): number | undefined {
  if (!isRecord(model)) return undefined
  const { unk_id: id, unk_token: token, vocab } = model
  const found = isRecord(vocab) && typeof token === 'string' ? vocab[token] : id
  return typeof found === 'number' ? found : undefined
}

/** The same tokenizer, with lower-casing before its own rules. */
function lowercased(tokenizerJson: Json): Json {
  const { normalizer } = tokenizerJson
  const normalizers = [{ type: 'Lowercase' }, ...(isRecord(normalizer) ? [normalizer] : [])]
  return { ...tokenizerJson, normalizer: { type: 'Sequence', normalizers } }
}
