/** The syntax in which a family writes the arguments of a call. */
type ArgumentSyntax = 'json' | 'python' | 'gemma' | 'xml'

/** How models of a family write calls. */
export interface CallFormat {
  /** Texts before a call or a list of calls. */
  readonly opens: readonly string[]
  /** The text after a call; absent where the call shows its own end. */
  readonly closes?: string
  /** Texts around calls that belong to no call. */
  readonly wrappers?: readonly string[]
  /** The first character of an answer that is a call without an opening text. */
  readonly bareStart?: '{' | '['
  readonly syntax: ArgumentSyntax
  /** How a call in tags is written. */
  readonly tags?: TagSyntax
  /** A call is an object whose only key is the name, with the arguments as its value. */
  readonly isKeyed?: boolean
  /** A call is a name, a separator and its arguments rather than one JSON object. */
  readonly isNamed?: boolean
  /** Calls as constrained decoding writes them. */
  readonly grammar: {
    readonly opening?: string
    /** One call; `$NAME` and `$ARGUMENTS` mark its two parts. */
    readonly call: string
    /** A parameter in tags; `$KEY`, `$VALUE` and `$IS_TEXT` (`true` or `false`) mark its parts. */
    readonly pair?: string
    /** The text between two calls; one call alone where it is absent. */
    readonly separator?: string
    readonly closing?: string
  }
  /** The length of the ids that the chat template accepts; any length when absent. */
  readonly idLength?: number
  /** A family is recognized when its chat template contains all of these texts. */
  readonly signs: readonly string[]
  /** It is also recognized by a template with tools and these tokens of the vocabulary. */
  readonly tokens?: readonly string[]
}

/** The texts around the parts of a call in tags. */
export interface TagSyntax {
  /** Before and after the name; without a text after it, white space or a tag ends the name. */
  readonly name: readonly [string, string]
  readonly key: readonly [string, string]
  /** Attributes between key and value may state whether the value is a text: `string="true"`. */
  readonly value: readonly [string, string]
  /** The text after the last parameter. */
  readonly end?: string
  /** Words are those of Python, such as `True`. */
  readonly isPython?: boolean
  /** A value may be in `<![CDATA[…]]>`. */
  readonly hasCdata?: boolean
}

/** The text with which a call begins. */
export function callTrigger({ opens, grammar, bareStart }: CallFormat): {
  readonly text: string
  /** The text counts only at the beginning of an answer. */
  readonly isAtStart: boolean
} {
  const [opening] = opens
  const isAtStart = bareStart !== undefined
  if (opening !== undefined && !isAtStart) return { text: opening, isAtStart }
  const beginning = (grammar.opening ?? '') + grammar.call
  return { text: beginning.slice(0, beginning.indexOf('$NAME')), isAtStart }
}
