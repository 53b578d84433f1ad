/** The syntax in which a family writes the arguments of a call. */
export type ArgumentSyntax = 'json' | 'python' | 'gemma' | 'xml'

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
  /** A call is a name, a separator and its arguments rather than one JSON object. */
  readonly isNamed?: boolean
  /** Calls as constrained decoding writes them. */
  readonly grammar: {
    readonly opening?: string
    /** One call; `$NAME` and `$ARGUMENTS` mark its two parts. */
    readonly call: string
    /** The text between two calls; one call alone where it is absent. */
    readonly separator?: string
    readonly closing?: string
  }
  /** The length of the ids that the chat template accepts; any length when absent. */
  readonly idLength?: number
  /** A family is recognized when its chat template contains all of these texts. */
  readonly signs: readonly string[]
}

/** How models of a family mark their reasoning. */
export interface ReasoningFormat {
  readonly opens: readonly string[]
  readonly closes: readonly string[]
  /** The tokens between which reasoning is counted; `after` precedes the opening one. */
  readonly tokens?: { readonly open: string; readonly close: string; readonly after?: string }
  readonly signs: readonly string[]
}

const HERMES_CALL = '<tool_call>\n{"name": "$NAME", "arguments": $ARGUMENTS}\n</tool_call>'
const JSON_CALL = '{"name": "$NAME", "arguments": $ARGUMENTS}'

/**
 * The families by the names that `options.toolParser` accepts. The first family
 * with all of its signs in a chat template is chosen; `hermes` is also the format for templates
 * that know no tools.
 */
export const CALL_FORMATS = {
  qwen3_coder: {
    opens: ['<tool_call>'],
    closes: '</tool_call>',
    syntax: 'xml',
    grammar: {
      call: '<tool_call>\n<function=$NAME>\n$ARGUMENTS</function>\n</tool_call>',
      separator: '\n',
    },
    signs: ['<function='],
  },
  harmony: {
    opens: [],
    wrappers: ['<|start|>', '<|end|>', '<|message|>', '<|channel|>', '<|constrain|>'],
    syntax: 'json',
    grammar: {
      call: '<|channel|>commentary to=functions.$NAME <|constrain|>json<|message|>$ARGUMENTS',
    },
    signs: ['<|channel|>', '<|message|>'],
  },
  deepseek_v3: {
    opens: ['<｜tool▁call▁begin｜>'],
    closes: '<｜tool▁call▁end｜>',
    wrappers: ['<｜tool▁calls▁begin｜>', '<｜tool▁calls▁end｜>', '<｜tool▁sep｜>'],
    syntax: 'json',
    isNamed: true,
    grammar: {
      opening: '<｜tool▁calls▁begin｜>',
      call: '<｜tool▁call▁begin｜>function<｜tool▁sep｜>$NAME\n```json\n$ARGUMENTS\n```<｜tool▁call▁end｜>',
      separator: '\n',
      closing: '<｜tool▁calls▁end｜>',
    },
    signs: ['<｜tool▁sep｜>', '```json'],
  },
  deepseek_v31: {
    opens: ['<｜tool▁call▁begin｜>'],
    closes: '<｜tool▁call▁end｜>',
    wrappers: ['<｜tool▁calls▁begin｜>', '<｜tool▁calls▁end｜>', '<｜tool▁sep｜>'],
    syntax: 'json',
    isNamed: true,
    grammar: {
      opening: '<｜tool▁calls▁begin｜>',
      call: '<｜tool▁call▁begin｜>$NAME<｜tool▁sep｜>$ARGUMENTS<｜tool▁call▁end｜>',
      separator: '\n',
      closing: '<｜tool▁calls▁end｜>',
    },
    signs: ['<｜tool▁sep｜>'],
  },
  mistral_named: {
    opens: ['[TOOL_CALLS]'],
    wrappers: ['[ARGS]', '[CALL_ID]'],
    syntax: 'json',
    isNamed: true,
    grammar: { call: '[TOOL_CALLS]$NAME[ARGS]$ARGUMENTS', separator: '' },
    idLength: 9,
    signs: ['[TOOL_CALLS]', '[ARGS]'],
  },
  mistral: {
    opens: ['[TOOL_CALLS]'],
    wrappers: ['[ARGS]', '[CALL_ID]'],
    syntax: 'json',
    isNamed: true,
    grammar: { opening: '[TOOL_CALLS][', call: JSON_CALL, separator: ', ', closing: ']' },
    idLength: 9,
    signs: ['[TOOL_CALLS]'],
  },
  gemma4: {
    opens: ['<|tool_call>'],
    closes: '<tool_call|>',
    wrappers: ['<|"|>'],
    syntax: 'gemma',
    grammar: { call: '<|tool_call>call:$NAME{$ARGUMENTS}<tool_call|>', separator: '' },
    signs: ['<|tool_call>', '<tool_call|>'],
  },
  gemma: {
    opens: ['<start_function_call>'],
    closes: '<end_function_call>',
    wrappers: ['<escape>'],
    syntax: 'gemma',
    grammar: {
      call: '<start_function_call>call:$NAME{$ARGUMENTS}<end_function_call>',
      separator: '',
    },
    signs: ['<start_function_call>'],
  },
  phi4: {
    opens: ['<|tool_call|>', 'functools'],
    wrappers: ['<|/tool_call|>'],
    syntax: 'json',
    grammar: {
      opening: '<|tool_call|>[',
      call: JSON_CALL,
      separator: ', ',
      closing: ']<|/tool_call|>',
    },
    signs: ['<|tool|>', '<|/tool|>'],
  },
  granite: {
    opens: ['<|tool_call|>'],
    syntax: 'json',
    grammar: { opening: '<|tool_call|>[', call: JSON_CALL, separator: ', ', closing: ']' },
    signs: ['<|tool_call|>'],
  },
  hermes: {
    opens: ['<tool_call>'],
    closes: '</tool_call>',
    syntax: 'json',
    grammar: { call: HERMES_CALL, separator: '\n' },
    signs: ['<tool_call>'],
  },
  pythonic: {
    opens: ['<|python_start|>'],
    wrappers: ['<|python_end|>'],
    bareStart: '[',
    syntax: 'python',
    grammar: { opening: '[', call: '$NAME($ARGUMENTS)', separator: ', ', closing: ']' },
    signs: ['[func_name1('],
  },
  llama3_json: {
    opens: ['<|python_tag|>'],
    bareStart: '{',
    syntax: 'json',
    grammar: { call: '{"name": "$NAME", "parameters": $ARGUMENTS}', separator: '; ' },
    signs: ['"parameters": dictionary of argument name and its value'],
  },
} as const satisfies Record<string, CallFormat>

/** The families by the names that `options.reasoningParser` accepts. */
export const REASONING_FORMATS = {
  harmony: {
    opens: [],
    closes: [],
    tokens: { open: 'analysis', close: '<|end|>', after: '<|channel|>' },
    signs: ['<|channel|>', '<|message|>'],
  },
  think: {
    opens: ['<think>'],
    closes: ['</think>'],
    tokens: { open: '<think>', close: '</think>' },
    signs: ['</think>'],
  },
  mistral: {
    opens: ['[THINK]'],
    closes: ['[/THINK]'],
    tokens: { open: '[THINK]', close: '[/THINK]' },
    signs: ['[THINK]'],
  },
  gemma4: {
    opens: ['<|channel>thought\n', '<|channel>'],
    closes: ['<channel|>'],
    tokens: { open: '<|channel>', close: '<channel|>' },
    signs: ['<|channel>'],
  },
  granite: {
    opens: ['Here is my thought process:', "Here's my thought process:"],
    closes: ['Here is my response:', "Here's my response:"],
    signs: ['Here is my thought process'],
  },
} as const satisfies Record<string, ReasoningFormat>

export type CallFormatName = keyof typeof CALL_FORMATS
export type ReasoningFormatName = keyof typeof REASONING_FORMATS

/** How the answers of a model are written; the worker reports it with the start of a job. */
export interface AnswerDialect {
  readonly calls: CallFormatName
  /** Absent where the model marks no reasoning. */
  readonly reasoning?: ReasoningFormatName
  /** The prompt ends inside the reasoning, so the answer begins there. */
  readonly beginsInReasoning?: boolean
}

/** The row of a family. */
export function callFormat(name: CallFormatName = 'hermes'): CallFormat {
  return CALL_FORMATS[name]
}

/** The row of a family. */
export function reasoningFormat(name: ReasoningFormatName): ReasoningFormat {
  return REASONING_FORMATS[name]
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

/**
 * Texts of a dialect that structure an answer. Texts of calls are included only where calls may
 * occur.
 */
export function markersOf(dialect: AnswerDialect, hasTools: boolean): readonly string[] {
  const { opens, closes, wrappers = [] } = callFormat(dialect.calls)
  const isHarmony = dialect.calls === 'harmony' || dialect.reasoning === 'harmony'
  const ofCalls = [...opens, ...(closes === undefined ? [] : [closes]), ...wrappers]
  const reasoning = dialect.reasoning && reasoningFormat(dialect.reasoning)
  return [
    ...(hasTools ? ofCalls : []),
    ...(isHarmony ? (CALL_FORMATS.harmony.wrappers as readonly string[]) : []),
    ...(reasoning ? [reasoning.tokens?.open, reasoning.tokens?.close] : []),
  ].filter((text) => text !== undefined)
}
