import type { TruncationSide } from '#shared/contracts/embedding.ts'
import { isRecord } from '#shared/json.ts'
import { findJson } from '#workers/models/folder-json.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Tokenizer } from '#workers/text/tokenizer.ts'

import type { EncodedText } from './encoder-batch.ts'
import type { EncoderFiles } from './encoder-files.ts'
import { findMarkers, type Markers } from './markers.ts'
import type { MultiVectorRole, MultiVectorSettings } from './multi-vector-settings.ts'
import { readText, readTextCut } from './read-input.ts'

/** A text in the form of a multi-vector model's input. */
export interface MultiVectorText extends EncodedText {
  /** The positions whose vectors are part of the answer. */
  readonly kept: readonly number[]
  /** Tokens of the text with its markers, without those after a query. */
  readonly textTokens: number
}

/** Reads texts by the rules of a model. */
export interface MultiVectorReader {
  /** Tokens of a document, with its markers. */
  readonly contextLength: number
  /**
   * The tokens of a text, cut to the length that the model reads for its role. Throws
   * `context_length_exceeded` instead when `isCut` is false.
   */
  read(
    text: string,
    role: MultiVectorRole,
    isCut: boolean,
    place?: { readonly side?: TruncationSide | undefined; readonly param?: string },
  ): Promise<MultiVectorText>
}

interface Rules {
  readonly markers: Markers
  readonly prefix: string
  readonly tokensMax: number
  readonly skipped: ReadonlySet<number>
}

/** Inputs to reading texts besides the settings of a model. */
interface ReaderParts {
  readonly folder: string
  readonly files: EncoderFiles
  readonly tokenizer: Tokenizer
  readonly maxContextTokens: number | undefined
  /** Tokens read of a document. Overrides the settings. */
  readonly documentLength: number | undefined
  readonly prompts: Readonly<Partial<Record<MultiVectorRole, string>>>
}

/** Throws `ModelLoadError` for settings that do not fit its tokenizer or positions. */
export async function createMultiVectorReader(
  settings: MultiVectorSettings,
  parts: ReaderParts,
): Promise<MultiVectorReader> {
  const { folder, files, maxContextTokens = files.positionsMax } = parts
  const room = Math.min(files.positionsMax, maxContextTokens)
  const expansion = await expansionOf(settings, parts)
  const { query: ofQueries, passage: ofDocuments } = settings
  const { tokensMax: queryMax = room } = ofQueries
  const { documentLength = ofDocuments.tokensMax ?? Math.min(room, files.contextLength) } = parts
  const rules: Readonly<Record<MultiVectorRole, Rules>> = {
    query: rulesOf(settings, 'query', { ...parts, tokensMax: widthOf(expansion, queryMax) }),
    passage: rulesOf(settings, 'passage', { ...parts, tokensMax: Math.min(documentLength, room) }),
  }
  if (rules.query.tokensMax > room) {
    throw new ModelLoadError(
      folder,
      `queries have ${rules.query.tokensMax} tokens, but the model reads ${room}`,
    )
  }
  return {
    contextLength: rules.passage.tokensMax,
    async read(text, role, isCut, { side, ...field } = {}) {
      const { markers, prefix, tokensMax, skipped } = rules[role]
      const reader = { tokenizer: parts.tokenizer, markers, contextLength: tokensMax, ...field }
      const whole = prefix + text
      const read = isCut ? readTextCut(reader, whole, tokensMax, side) : readText(reader, whole)
      const ids = await read
      const missing = role === 'query' && expansion ? expansion.length - ids.length : 0
      const tokenIds = [
        ...ids,
        ...Array<number>(Math.max(missing, 0)).fill(expansion?.tokenId ?? 0),
      ]
      const kept = [...tokenIds.keys()].filter((at) => !skipped.has(tokenIds[at] as number))
      return {
        tokenIds,
        kept,
        textTokens: ids.length,
        ...(expansion?.isAttended === false && { attendedCount: ids.length }),
      }
    },
  }
}

type Expansion = NonNullable<MultiVectorSettings['expansion']> & { readonly tokenId: number }

/** The padded width of a query, or the most that it may have. */
function widthOf(expansion: Expansion | undefined, queryMax: number): number {
  if (expansion === undefined) return queryMax
  return expansion.isFixed ? expansion.length : Math.max(expansion.length, queryMax)
}

async function expansionOf(
  { expansion }: MultiVectorSettings,
  { folder, files, tokenizer }: ReaderParts,
): Promise<Expansion | undefined> {
  if (expansion === undefined) return undefined
  const special = {
    ...(await findJson(folder, 'special_tokens_map.json')),
    ...files.tokenizerConfig,
  }
  const names = [expansion.token ?? special.mask_token ?? special.eos_token]
  const [name] = names.map((token) => (isRecord(token) ? token.content : token))
  const tokenId = tokenizer.findTokenId(String(name))
  if (tokenId !== undefined) return { ...expansion, tokenId }
  throw new ModelLoadError(
    folder,
    `the tokenizer has no token ${String(name)} to fill queries with`,
  )
}

function rulesOf(
  settings: MultiVectorSettings,
  role: MultiVectorRole,
  { folder, files, tokenizer, prompts, tokensMax }: ReaderParts & { readonly tokensMax: number },
): Rules {
  const { marker, prefix } = markerOf(settings[role], { folder, files, tokenizer })
  const { before, after } = findMarkers(tokenizer, files.tokenizerConfig)
  const markers = { before: [...before, ...marker], after }
  const markerCount = markers.before.length + after.length
  if (tokensMax <= markerCount) {
    throw new ModelLoadError(
      folder,
      `a ${role} of ${tokensMax} tokens has no room besides the ${markerCount} markers`,
    )
  }
  const words = settings.skippedIn.includes(role) ? settings.skiplist : []
  // A word that is not a single token would otherwise exclude the token of all unknown words.
  const skipped = words.map((word) => tokenizer.findTokenId(word))
  return {
    markers,
    prefix: prompts[role] ?? prefix,
    tokensMax,
    skipped: new Set(skipped.filter((id) => id !== undefined)),
  }
}

/** The marker that the settings name, or the added token with which a prompt begins. */
function markerOf(
  { marker, prompt }: MultiVectorSettings[MultiVectorRole],
  { folder, files, tokenizer }: Pick<ReaderParts, 'folder' | 'files' | 'tokenizer'>,
): { readonly marker: readonly number[]; readonly prefix: string } {
  if (marker !== undefined) {
    const tokenId = tokenizer.findTokenId(marker)
    if (tokenId !== undefined) return { marker: [tokenId], prefix: prompt }
    throw new ModelLoadError(folder, `the tokenizer has no token "${marker}" to mark texts with`)
  }
  const { added_tokens: added } = files.tokenizerJson as { readonly added_tokens?: unknown }
  const tokens = Array.isArray(added) ? added.filter(isRecord) : []
  const [longest] = tokens
    .filter(({ content }) => typeof content === 'string' && content !== '')
    .filter(({ content }) => prompt.startsWith(content as string))
    .toSorted((one, other) => String(other.content).length - String(one.content).length)
  if (longest === undefined) return { marker: [], prefix: prompt }
  return {
    marker: [longest.id as number],
    prefix: prompt.slice(String(longest.content).length),
  }
}
