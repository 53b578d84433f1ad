import { existsSync } from 'node:fs'
import { join } from 'node:path'

import { isRecord } from '#shared/json.ts'
import { findJson, findModelBytes, findModelText } from '#workers/models/folder-json.ts'
import { isVocabularyId } from '#workers/models/tokenizer-limits.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

import { PIECE_CLASSES } from './piece-classes.ts'
import { RANK_CLASSES } from './rank-classes.ts'
import { readSentencePiece } from './sentencepiece.ts'
import { type AddedToken, addedTokens, postProcessorOf, rolesOf } from './special-tokens.ts'
import type { TokenizerClass, TokenizerFolder, TokenizerParts } from './tokenizer-class.ts'
import { WORD_CLASSES } from './word-classes.ts'

type Json = Readonly<Record<string, unknown>>

/** The files of a model's tokenizer. */
export interface TokenizerFiles {
  /** `tokenizer.json`, or its equivalent made of other files. */
  readonly json: Json
  /** `tokenizer_config.json`, completed by the special tokens of other files and of the class. */
  readonly config: Json
  /** The tokens of answers, if they are not those of texts. */
  readonly answers?: Json
}

/**
 * Reads the tokenizer of a model's folder. Folders without a `tokenizer.json` have the files of a
 * class of transformers, which are converted as it converts them. `usualClass` is that of folders
 * that name none. Throws `ModelLoadError`.
 */
export async function readTokenizer(folder: string, usualClass?: string): Promise<TokenizerFiles> {
  const settings = await readSettings(folder)
  const json = await findJson(folder, 'tokenizer.json')
  if (json !== undefined) return { json, config: settings }
  const found = await findClass(folder, settings, usualClass)
  const roles = rolesOf(settings, found.tokens)
  try {
    const parts = await found.build(openFolder(folder, settings, roles))
    const named = [...roles].map(([role, { content }]) => [role, content] as const)
    const answers = parts.answers && answersOf(parts, parts.answers, roles)
    return {
      json: await joinParts(folder, settings, roles, parts),
      config: { ...settings, ...Object.fromEntries(named) },
      ...(answers && { answers }),
    }
  } catch (error) {
    if (error instanceof ModelLoadError) throw error
    const { message } = error as Error
    throw new ModelLoadError(folder, `its tokenizer cannot be made of its files: ${message}`)
  }
}

/**
 * `tokenizer_config.json`. If it does not list its added tokens, as older ones do not, a separate
 * file takes precedence: for the second Stable Diffusions only that file states the padding token.
 */
async function readSettings(folder: string): Promise<Json> {
  const config = (await findJson(folder, 'tokenizer_config.json')) ?? {}
  if (config.added_tokens_decoder !== undefined) return config
  return { ...config, ...(await findJson(folder, 'special_tokens_map.json')) }
}

const CLASSES = [...PIECE_CLASSES, ...WORD_CLASSES, ...RANK_CLASSES]
const isText = (value: unknown): value is string => typeof value === 'string'
const wordsIn = (text: string): readonly string[] => text.split(' ')

async function findClass(
  folder: string,
  settings: Json,
  usualClass: string | undefined,
): Promise<TokenizerClass> {
  for (const known of CLASSES) {
    if (known.file !== undefined && existsSync(join(folder, known.file))) return known
  }
  const config = (await findJson(folder, 'config.json')) ?? {}
  const stated = [settings.tokenizer_class, config.tokenizer_class, usualClass].find(isText)
  const modelType = isText(config.model_type) ? config.model_type : undefined
  const name = stated?.replace(/Tokenizer(Fast)?$/, '') ?? ''
  const isWanted = ({ names, modelTypes }: TokenizerClass): boolean =>
    stated === undefined
      ? modelType !== undefined && wordsIn(modelTypes).includes(modelType)
      : wordsIn(names).includes(name)
  const found = CLASSES.find(isWanted)
  if (found !== undefined) return found
  const reason =
    stated !== undefined
      ? `files of the class ${stated.slice(0, 60)} are not read instead`
      : modelType === undefined
        ? 'no file names the class of its tokenizer'
        : `no class of tokenizers is known for model_type "${modelType.slice(0, 40)}"`
  throw new ModelLoadError(folder, `tokenizer.json is missing, and ${reason}`)
}

const PIECES_BYTES_MAX = 32 << 20 // the largest published models take some 5 MB
/** Names of SentencePiece models. */
const PIECE_FILES = [
  'spiece.model',
  'sentencepiece.bpe.model',
  'tokenizer.model',
  'spm.model',
  'sentencepiece.model',
]

function openFolder(
  folder: string,
  settings: Json,
  roles: TokenizerFolder['roles'],
): TokenizerFolder {
  const readText = async (name: string): Promise<string> => {
    const text = await findModelText(folder, name)
    if (text === undefined) throw missing(folder, name)
    return text
  }
  const readJson = async (name: string): Promise<Json> => {
    const json = await findJson(folder, name)
    if (json === undefined) throw missing(folder, name)
    return json
  }
  return {
    settings,
    roles,
    async readPieces(only) {
      for (const name of only === undefined ? PIECE_FILES : [only]) {
        const bytes = await findModelBytes(folder, name, PIECES_BYTES_MAX)
        if (bytes === undefined) continue
        try {
          return await readSentencePiece(bytes)
        } catch (error) {
          const { message } = error as Error
          throw new ModelLoadError(
            folder,
            `${name} cannot be read as a SentencePiece model: ${message}`,
          )
        }
      }
      throw missing(folder, only ?? PIECE_FILES.join(' or '))
    },
    readText,
    readJson,
    readIds: async (name = 'vocab.json') => tokenIdsOf(folder, name, await readJson(name)),
    async readMerges() {
      const [first = '', ...rest] = (await readText('merges.txt')).split(/\r?\n/)
      const lines = first.startsWith('#version') ? rest : [first, ...rest]
      return lines.map((line) => line.trim()).filter((line) => line !== '')
    },
    async readWords() {
      const lines = (await readText('vocab.txt')).split(/\r\n|\r|\n/)
      return lines.at(-1) === '' ? lines.slice(0, -1) : lines
    },
  }
}

function missing(folder: string, name: string): ModelLoadError {
  return new ModelLoadError(folder, `tokenizer.json is missing, and so is ${name}`)
}

function tokenIdsOf(folder: string, name: string, ids: Json): Readonly<Record<string, number>> {
  const wrong = Object.values(ids).find((id) => !isVocabularyId(id))
  if (wrong === undefined) return ids as Record<string, number>
  throw new ModelLoadError(folder, `${name}: ${String(wrong).slice(0, 40)} is not a token id`)
}

/** The whole `tokenizer.json`. */
async function joinParts(
  folder: string,
  settings: Json,
  roles: TokenizerFolder['roles'],
  { model, normalizer = null, pre_tokenizer = null, decoder, ...parts }: TokenizerParts,
): Promise<Json> {
  const vocabulary = new Map(idsOf(model.vocab))
  const older =
    settings.added_tokens_decoder === undefined ? await findJson(folder, 'added_tokens.json') : {}
  const idOf = (token: string): number | undefined => vocabulary.get(token)
  const added = addedTokens({
    settings,
    older: tokenIdsOf(folder, 'added_tokens.json', older ?? {}),
    roles,
    ofModel: (parts.found ?? []).flatMap((token): readonly AddedToken[] => {
      const id = token.id ?? idOf(token.content)
      return id === undefined ? [] : [{ ...token, id }]
    }),
    additional: parts.additional ?? [],
    idOf,
    vocabularySize: 1 + [...vocabulary.values()].reduce((last, id) => Math.max(last, id), -1),
  })
  const ids = new Map([...vocabulary, ...added.map(({ content, id }) => [content, id] as const)])
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: added,
    normalizer,
    pre_tokenizer,
    post_processor: parts.template
      ? postProcessorOf(parts.template, roles, (token) => ids.get(token))
      : null,
    decoder,
    model,
  }
}

/** The tokens of answers, which end with the same token as texts. */
function answersOf(
  { model, decoder }: TokenizerParts,
  vocab: Readonly<Record<string, number>>,
  roles: TokenizerFolder['roles'],
): Json {
  const end = roles.get('eos_token')?.content
  const inTexts = idsOf(model.vocab).find(([token]) => token === end)?.[1]
  if (end === undefined || vocab[end] !== inTexts) {
    throw new Error(`the two vocabularies have different ids of ${end}`)
  }
  const special = [...roles.values()].flatMap(({ content }) => {
    const id = vocab[content]
    return id === undefined ? [] : [{ id, content, special: true }]
  })
  return { model: { vocab }, added_tokens: special, decoder }
}

function idsOf(vocabulary: unknown): readonly (readonly [string, number])[] {
  if (isRecord(vocabulary)) return Object.entries(vocabulary) as [string, number][]
  return (vocabulary as readonly (readonly [string, number])[]).map(([text], id) => [text, id])
}
