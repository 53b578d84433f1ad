import type { Tag, TagFormat } from '#shared/contracts/structural-tag.ts'
import type { Grammar, GrammarBuilder } from '#workers/sampling/constraint/grammar.ts'
import { textUntil } from '#workers/sampling/constraint/text-search.ts'

type Leaf = Extract<TagFormat, { readonly kind: 'json' | 'regex' | 'grammar' }>

/** The compiler of the parts of a structural tag. */
interface TagTools {
  readonly builder: GrammarBuilder
  readonly compileLeaf: (leaf: Leaf) => Grammar
}

/**
 * Compiles a structural tag. Free text within a tag extends to the first of the tag's ends, so the
 * ends are passed down to it.
 */
export function tagGrammar(format: TagFormat, tools: TagTools): Grammar {
  return compile(format, [], tools)
}

/** A format and one of the texts that end it, unless there are none. */
function compile(format: TagFormat, ends: readonly string[], tools: TagTools): Grammar {
  const { builder } = tools
  const ended = (body: Grammar): Grammar => followedBy(builder, body, ends)
  switch (format.kind) {
    case 'anyText':
      return anyText(builder, format.excludes, ends)
    case 'triggered':
      return triggeredTags(format, ends, tools)
    case 'choice':
      return builder.choiceOf(format.parts.map((part) => compile(part, ends, tools)))
    case 'sequence': {
      const last = format.parts.length - 1
      return builder.sequenceOf(
        format.parts.map((part, at) => compile(part, at === last ? ends : [], tools)),
      )
    }
    case 'text':
      return ended(builder.literal(format.text))
    case 'repeat':
      return ended(builder.repeat(compile(format.body, [], tools), format.min, format.max))
    case 'tag':
      return ended(tagBehind('', format, tools))
    case 'separated':
      return ended(separatedTags(format, tools))
    case 'json':
    case 'regex':
    case 'grammar':
      return ended(tools.compileLeaf(format))
  }
}

function separatedTags(
  format: Extract<TagFormat, { readonly kind: 'separated' }>,
  tools: TagTools,
): Grammar {
  const { builder } = tools
  const one = builder.choiceOf(format.tags.map((tag) => tagBehind('', tag, tools)))
  const next = builder.sequence(builder.literal(format.separator), one)
  const all = format.stopAfterFirst ? one : builder.sequence(one, builder.repeat(next, 0))
  return format.atLeastOne ? all : builder.optional(all)
}

/** A tag whose first characters were read. */
function tagBehind(read: string, { begin, content, ends }: Tag, tools: TagTools): Grammar {
  const { builder } = tools
  return builder.sequence(builder.literal(begin.slice(read.length)), compile(content, ends, tools))
}

function anyText(
  builder: GrammarBuilder,
  excludes: readonly string[],
  ends: readonly string[],
): Grammar {
  const nothing = builder.literal('')
  const patterns = new Map<string, Grammar | undefined>(excludes.map((text) => [text, undefined]))
  for (const end of ends) patterns.set(end, nothing)
  return textUntil(builder, patterns, { mayEnd: ends.length === 0 })
}

function triggeredTags(
  format: Extract<TagFormat, { readonly kind: 'triggered' }>,
  ends: readonly string[],
  tools: TagTools,
): Grammar {
  const { builder } = tools
  const { triggers, tags, excludes, atLeastOne, stopAfterFirst } = format
  const behindTag = stopAfterFirst
    ? followedBy(builder, builder.literal(''), ends)
    : builder.reference(() => text)
  const oneOf = (trigger: string): Grammar =>
    builder.choiceOf(
      tags
        .filter(({ begin }) => begin.startsWith(trigger))
        .map((tag) => builder.sequence(tagBehind(trigger, tag, tools), behindTag)),
    )
  const patterns = new Map<string, Grammar | undefined>(excludes.map((one) => [one, undefined]))
  for (const end of ends) patterns.set(end, builder.literal(''))
  for (const trigger of triggers) patterns.set(trigger, oneOf(trigger))
  const text = textUntil(builder, patterns, { mayEnd: ends.length === 0 })
  // As in xgrammar, an answer that must have a tag begins with it.
  return atLeastOne ? oneOf('') : text
}

function followedBy(builder: GrammarBuilder, body: Grammar, ends: readonly string[]): Grammar {
  if (ends.length === 0) return body
  return builder.sequence(body, builder.choiceOf(ends.map((end) => builder.literal(end))))
}
