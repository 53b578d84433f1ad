import { type CallFormat, callTrigger } from '#shared/contracts/call-syntax.ts'
import type { Grammar, GrammarBuilder } from '#workers/sampling/constraint/grammar.ts'
import type { SchemaCompiler } from '#workers/sampling/constraint/json-schema.ts'

/** A tool with the grammar of its arguments in the syntax of the family. */
export interface CompiledTool {
  readonly name: string
  readonly parameters: Grammar
}

/** One call from its first character to its last, or several where `many` are allowed. */
export function wholeCall(
  builder: GrammarBuilder,
  { grammar }: CallFormat,
  tools: readonly CompiledTool[],
  many = false,
): Grammar {
  const { opening = '', call, separator, closing = '' } = grammar
  const one = oneCall(call, tools, (text) => builder.literal(text), builder)
  const isMany = many && separator !== undefined
  // Formats with a line break between calls also allow calls without one.
  const between = (): Grammar =>
    separator === '\n' ? builder.optional(builder.literal('\n')) : builder.literal(separator ?? '')
  const more = isMany ? [builder.repeat(builder.sequence(between(), one), 0)] : []
  return builder.sequence(builder.literal(opening), one, ...more, builder.literal(closing))
}

/**
 * The grammar after the text that announces a call, to the end of the call; line breaks are
 * optional.
 */
export function callBehindTrigger(
  builder: GrammarBuilder,
  format: CallFormat,
  tools: readonly CompiledTool[],
): Grammar {
  const { opening = '', call, separator, closing = '' } = format.grammar
  const { text } = callTrigger(format)
  const loose = (part: string): Grammar => looseText(builder, part)
  const beginning = opening + call
  const rest = beginning.slice(beginning.indexOf(text) + text.length)
  const isInCall = rest.length <= call.length
  if (isInCall && opening === '') return oneCall(rest, tools, loose, builder)
  if (isInCall && closing.length > 1) return oneCall(rest, tools, loose, builder)
  const first = oneCall(isInCall ? rest : call, tools, loose, builder)
  const next = oneCall(call, tools, loose, builder)
  const before = isInCall ? '' : rest.slice(0, rest.length - call.length)
  const more =
    separator === undefined
      ? []
      : [builder.repeat(builder.sequence(builder.literal(separator), next), 0)]
  const space = builder.optional(builder.literal(' '))
  return builder.sequence(
    ...(before === '' ? [] : [space, builder.literal(before)]),
    first,
    ...more,
    builder.literal(closing),
  )
}

function oneCall(
  call: string,
  tools: readonly CompiledTool[],
  text: (part: string) => Grammar,
  builder: GrammarBuilder,
): Grammar {
  const [before = '', after = ''] = call.split('$ARGUMENTS')
  const [front = '', between = ''] = before.split('$NAME')
  return builder.choiceOf(
    tools.map((tool) =>
      builder.sequence(
        text(front),
        builder.literal(tool.name),
        text(between),
        tool.parameters,
        text(after),
      ),
    ),
  )
}

function looseText(builder: GrammarBuilder, text: string): Grammar {
  const newline = builder.optional(builder.literal('\n'))
  const parts = text.split('\n').map((part) => builder.literal(part))
  return builder.sequence(...parts.flatMap((part, at) => (at === 0 ? [part] : [newline, part])))
}

type Json = Readonly<Record<string, unknown>>

/** How arguments that are not JSON objects are written. */
interface PairSyntax {
  readonly before: (key: string, isText: boolean) => string
  readonly after: string
  readonly separator: string
}

const PAIRS = {
  python: { before: (key) => `${key}=`, after: '', separator: ', ' },
  gemma: { before: (key) => `${key}:`, after: '', separator: ',' },
} as const satisfies Record<string, PairSyntax>

function pairSyntax({ syntax, grammar }: CallFormat): PairSyntax {
  if (syntax === 'python' || syntax === 'gemma') return PAIRS[syntax]
  const [before = '', after = ''] = (grammar.pair ?? '').split('$VALUE')
  return {
    before: (key, isText) => before.replace('$KEY', () => key).replace('$IS_TEXT', String(isText)),
    after,
    separator: '',
  }
}

/** The possible values, and the format of plain text, in one syntax. */
interface ValueTools {
  readonly compiler: SchemaCompiler
  readonly format: CallFormat
  /** The token around strings in Gemma's format. */
  readonly quote: string
  readonly compileJson: (schema: Json) => Grammar
}

/**
 * The arguments of a tool in a syntax of pairs, in the order of its schema. Names, required ones
 * and types are enforced, including values inside lists and objects.
 */
export function pairedArguments(schema: Json, tools: ValueTools): Grammar {
  const { builder } = tools.compiler.json
  const properties = Object.entries((schema.properties ?? {}) as Record<string, unknown>)
  const required = new Set(Array.isArray(schema.required) ? schema.required : [])
  const { before, after, separator } = pairSyntax(tools.format)
  const pairs = properties.map(([key, value]) => ({
    isRequired: required.has(key),
    grammar: builder.sequence(
      builder.literal(before(key, isText((value ?? {}) as Json))),
      valueGrammar((value ?? {}) as Json, schema, tools),
      builder.literal(after),
    ),
  }))
  const nothing = builder.literal('')
  // From the last pair to the first: what may follow after other pairs, and at the beginning.
  let behind = nothing
  let first = nothing
  for (const { isRequired, grammar } of pairs.toReversed()) {
    const here = builder.sequence(grammar, behind)
    first = isRequired ? here : builder.choice(here, first)
    const next = builder.sequence(builder.literal(separator), grammar, behind)
    behind = isRequired ? next : builder.choice(next, behind)
  }
  return first
}

const KEYWORDS_OF_TEXT = ['pattern', 'x-lark', 'format', 'minLength', 'maxLength'] as const

function isText(value: Json): boolean {
  const values = 'const' in value ? [value.const] : value.enum
  return Array.isArray(values)
    ? values.every((entry) => typeof entry === 'string')
    : value.type === 'string'
}

/** Whether the words of the syntax are `True`, `False` and `None`. */
function hasPythonWords({ syntax, tags }: CallFormat): boolean {
  return syntax === 'python' || tags?.isPython === true
}

function valueGrammar(value: Json, root: Json, tools: ValueTools): Grammar {
  const { compiler, format, quote, compileJson } = tools
  const { syntax } = format
  const { builder } = compiler.json
  const values = 'const' in value ? [value.const] : value.enum
  if (Array.isArray(values)) {
    return builder.choiceOf(values.map((entry) => builder.literal(writtenAs(entry, tools))))
  }
  if (value.type === 'boolean' && hasPythonWords(format)) {
    return builder.choice(builder.literal('True'), builder.literal('False'))
  }
  const json = (): Grammar =>
    compileJson({ ...value, $defs: root.$defs, definitions: root.definitions })
  if (value.type !== 'string' || syntax === 'python') return json()
  const limit = KEYWORDS_OF_TEXT.find((keyword) => value[keyword] !== undefined)
  if (limit !== undefined) {
    const place = { path: 'tools', depth: 0, followed: [] }
    compiler.refuse(place, `'${limit}' cannot be enforced in the format of this model`)
  }
  const plain = textWithoutTags(builder)
  return syntax === 'xml'
    ? plain
    : builder.sequence(builder.literal(quote), plain, builder.literal(quote))
}

function writtenAs(value: unknown, { format, quote }: ValueTools): string {
  const { syntax } = format
  if (typeof value === 'string') {
    if (syntax === 'xml') return value
    return syntax === 'gemma' ? quote + value + quote : JSON.stringify(value)
  }
  if (!hasPythonWords(format)) return JSON.stringify(value)
  const python: Readonly<Record<string, string>> = { true: 'True', false: 'False', null: 'None' }
  const json = JSON.stringify(value)
  return python[json] ?? json
}

/** Plain text without tags: a `<` is followed by a space, a digit or an equals sign. */
function textWithoutTags(builder: GrammarBuilder): Grammar {
  const plain = builder.byte([0x09, 0x0a], [0x20, 0x3b], [0x3d, 0x7f])
  const tail = builder.byte([0x80, 0xbf])
  const wide = builder.choice(
    builder.sequence(builder.byte([0xc2, 0xdf]), tail),
    builder.sequence(builder.byte([0xe0, 0xef]), tail, tail),
    builder.sequence(builder.byte([0xf0, 0xf4]), tail, tail, tail),
  )
  const less = builder.sequence(builder.literal('<'), builder.byte([0x20, 0x20], [0x30, 0x3d]))
  return builder.repeat(builder.choice(plain, wide, less), 0)
}
