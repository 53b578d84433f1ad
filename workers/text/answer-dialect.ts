import {
  type AnswerDialect,
  markersOf,
  REASONING_FORMATS,
  type ReasoningFormatName,
  reasoningFormat,
} from '#shared/contracts/answer-formats.ts'
import { CALL_FORMATS, type CallFormatName } from '#shared/contracts/call-formats.ts'
import type { CallFormat } from '#shared/contracts/call-syntax.ts'

import type { TokenPieces } from './detokenizer.ts'
import type { Tokenizer } from './tokenizer.ts'

/** Settings of the catalogue for the answers of a model. */
export interface DialectOptions {
  readonly toolParser?: CallFormatName
  readonly reasoningParser?: ReasoningFormatName | 'none'
}

/**
 * The dialect of a model's answers: from the catalogue, or recognized by texts in its chat template
 * and vocabulary. For a template without tools, Hermes is used to describe them.
 */
export function findDialect(
  templateText: string,
  tokenizer: Pick<Tokenizer, 'findTokenId'>,
  { toolParser, reasoningParser }: DialectOptions = {},
): AnswerDialect {
  const holds = (signs: readonly string[]): boolean =>
    signs.every((sign) => templateText.includes(sign))
  const isKnown = (token: string): boolean => tokenizer.findTokenId(token) !== undefined
  const calls =
    toolParser ??
    nameOf<CallFormatName, CallFormat>(CALL_FORMATS, ({ signs, tokens = [] }) => {
      const isNamed = holds(signs) || (tokens.length > 0 && tokens.every(isKnown))
      return /\btools\b/.test(templateText) && isNamed
    })
  const reasoning =
    reasoningParser ??
    nameOf(REASONING_FORMATS, (format) => {
      const { open, close, after } = { after: undefined, ...reasoningTokens(format) }
      const tokens = [open, close, after].filter((token) => token !== undefined)
      return holds(format.signs) || (tokens.length > 0 && tokens.every(isKnown))
    })
  return {
    calls: calls ?? 'hermes',
    ...(reasoning !== undefined && reasoning !== 'none' && { reasoning }),
  }
}

/** Whether clients must know the dialect to read the answers. */
export function isSpecial({ calls, reasoning }: AnswerDialect): boolean {
  return calls !== 'hermes' || reasoning !== undefined
}

/** Whether a prompt ends inside the reasoning that its template opens. */
export function beginsInReasoning({ reasoning }: AnswerDialect, prompt: string): boolean {
  if (reasoning === undefined) return false
  const end = prompt.trimEnd()
  return reasoningFormat(reasoning).opens.some((opening) => end.endsWith(opening.trimEnd()))
}

/** Pieces in which the markers of a dialect are text, including special tokens. */
export function showMarkers(
  { pieces, findTokenId }: Tokenizer,
  dialect: AnswerDialect,
  hasTools: boolean,
): TokenPieces {
  const shown = new Set(
    markersOf(dialect, hasTools)
      .map((marker) => findTokenId(marker))
      .filter((tokenId) => tokenId !== undefined && pieces.isSpecial(tokenId)),
  )
  if (shown.size === 0) return pieces
  return { ...pieces, isSpecial: (tokenId) => !shown.has(tokenId) && pieces.isSpecial(tokenId) }
}

interface CountedTokens {
  readonly open: string
  readonly close: string
  readonly after?: string
}

function reasoningTokens(format: object): Partial<CountedTokens> {
  return 'tokens' in format ? (format.tokens as CountedTokens) : {}
}

function nameOf<Name extends string, Format>(
  table: Readonly<Record<Name, Format>>,
  holds: (format: Format) => boolean,
): Name | undefined {
  return (Object.keys(table) as Name[]).find((name) => holds(table[name]))
}
