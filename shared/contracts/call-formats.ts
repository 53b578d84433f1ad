import type { CallFormat, TagSyntax } from './call-syntax.ts'

const HERMES_CALL = '<tool_call>\n{"name": "$NAME", "arguments": $ARGUMENTS}\n</tool_call>'
const JSON_CALL = '{"name": "$NAME", "arguments": $ARGUMENTS}'

/** Tags of Qwen3-Coder. */
const FUNCTION_TAGS = {
  name: ['<function=', '>'],
  key: ['<parameter=', '>'],
  value: ['', '</parameter>'],
  end: '</function>',
  isPython: true,
} as const satisfies TagSyntax
/** Tags of GLM. */
const ARGUMENT_TAGS = {
  name: ['', ''],
  key: ['<arg_key>', '</arg_key>'],
  value: ['<arg_value>', '</arg_value>'],
} as const satisfies TagSyntax
/** Calls of DeepSeek V3.2 and V4, whose outermost tags differ. */
const DSML = {
  opens: ['<｜DSML｜invoke name="'],
  closes: '</｜DSML｜invoke>',
  wrappers: [
    ...['<｜DSML｜function_calls>', '</｜DSML｜function_calls>'],
    ...['<｜DSML｜tool_calls>', '</｜DSML｜tool_calls>'],
  ],
  syntax: 'xml',
  tags: {
    name: ['', '">'],
    key: ['<｜DSML｜parameter name="', '"'],
    value: ['>', '</｜DSML｜parameter>'],
  },
  grammar: {
    call: '<｜DSML｜invoke name="$NAME">\n$ARGUMENTS</｜DSML｜invoke>',
    pair: '<｜DSML｜parameter name="$KEY" string="$IS_TEXT">$VALUE</｜DSML｜parameter>\n',
    separator: '\n',
  },
} as const

/**
 * The families by the names that `options.toolParser` accepts. The first family
 * with all of its signs in a chat template is chosen; `hermes` is also the format for templates
 * that know no tools.
 */
export const CALL_FORMATS = {
  seed_oss: {
    opens: ['<seed:tool_call>'],
    closes: '</seed:tool_call>',
    syntax: 'xml',
    tags: FUNCTION_TAGS,
    grammar: {
      call: '<seed:tool_call>\n<function=$NAME>\n$ARGUMENTS</function>\n</seed:tool_call>',
      pair: '<parameter=$KEY>$VALUE</parameter>\n',
      separator: '\n',
    },
    signs: ['<seed:tool_call>'],
  },
  qwen3_coder: {
    opens: ['<tool_call>'],
    closes: '</tool_call>',
    syntax: 'xml',
    tags: FUNCTION_TAGS,
    grammar: {
      call: '<tool_call>\n<function=$NAME>\n$ARGUMENTS</function>\n</tool_call>',
      pair: '<parameter=$KEY>\n$VALUE\n</parameter>\n',
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
  glm45: {
    opens: ['<tool_call>'],
    closes: '</tool_call>',
    syntax: 'xml',
    tags: ARGUMENT_TAGS,
    grammar: {
      call: '<tool_call>$NAME\n$ARGUMENTS</tool_call>',
      pair: '<arg_key>$KEY</arg_key>\n<arg_value>$VALUE</arg_value>\n',
      separator: '\n',
    },
    signs: ['<tool_call>', '</arg_key>\n<arg_value>'],
  },
  glm47: {
    opens: ['<tool_call>'],
    closes: '</tool_call>',
    syntax: 'xml',
    tags: ARGUMENT_TAGS,
    grammar: {
      call: '<tool_call>$NAME$ARGUMENTS</tool_call>',
      pair: '<arg_key>$KEY</arg_key><arg_value>$VALUE</arg_value>',
      separator: '',
    },
    signs: ['<tool_call>', '<arg_key>'],
  },
  minimax_m2: {
    opens: ['<invoke name="'],
    closes: '</invoke>',
    wrappers: ['<minimax:tool_call>', '</minimax:tool_call>'],
    syntax: 'xml',
    tags: { name: ['', '">'], key: ['<parameter name="', '"'], value: ['>', '</parameter>'] },
    grammar: {
      opening: '<minimax:tool_call>\n',
      call: '<invoke name="$NAME">\n$ARGUMENTS</invoke>',
      pair: '<parameter name="$KEY">$VALUE</parameter>\n',
      separator: '\n',
      closing: '\n</minimax:tool_call>',
    },
    // The template of MiniMax-M2 joins its tags from parts.
    signs: ['minimax:tool_call', '<invoke name='],
  },
  minicpm5: {
    opens: ['<function name="'],
    closes: '</function>',
    syntax: 'xml',
    tags: {
      name: ['', '">'],
      key: ['<param name="', '"'],
      value: ['>', '</param>'],
      hasCdata: true,
    },
    grammar: {
      call: '<function name="$NAME">$ARGUMENTS</function>',
      pair: '<param name="$KEY">$VALUE</param>',
      separator: '\n',
    },
    signs: ['<function name="', '<param name="'],
  },
  deepseek_v32: {
    ...DSML,
    grammar: {
      ...DSML.grammar,
      opening: '<｜DSML｜function_calls>\n',
      closing: '\n</｜DSML｜function_calls>',
    },
    signs: ['｜DSML｜', 'function_calls>'],
  },
  deepseek_v4: {
    ...DSML,
    grammar: {
      ...DSML.grammar,
      opening: '<｜DSML｜tool_calls>\n',
      closing: '\n</｜DSML｜tool_calls>',
    },
    signs: ['｜DSML｜'],
  },
  kimi_k2: {
    opens: ['<|tool_call_begin|>'],
    closes: '<|tool_call_end|>',
    wrappers: [
      '<|tool_calls_section_begin|>',
      '<|tool_calls_section_end|>',
      '<|tool_call_argument_begin|>',
    ],
    syntax: 'json',
    isNamed: true,
    grammar: {
      opening: '<|tool_calls_section_begin|>',
      call: '<|tool_call_begin|>functions.$NAME:0<|tool_call_argument_begin|>$ARGUMENTS<|tool_call_end|>',
      separator: '',
      closing: '<|tool_calls_section_end|>',
    },
    signs: ['<|tool_call_argument_begin|>'],
  },
  cohere: {
    opens: ['<|START_ACTION|>'],
    closes: '<|END_ACTION|>',
    syntax: 'json',
    grammar: {
      opening: '<|START_ACTION|>[\n    ',
      call: '{"tool_call_id": "0", "tool_name": "$NAME", "parameters": $ARGUMENTS}',
      separator: ',\n    ',
      closing: '\n]<|END_ACTION|>',
    },
    signs: ['<|START_ACTION|>'],
  },
  apertus: {
    opens: ['<|tools_prefix|>'],
    closes: '<|tools_suffix|>',
    syntax: 'json',
    isKeyed: true,
    grammar: {
      opening: '<|tools_prefix|>[',
      call: '{"$NAME": $ARGUMENTS}',
      separator: ', ',
      closing: ']<|tools_suffix|>',
    },
    signs: ['<|tools_prefix|>'],
  },
  lfm2: {
    opens: ['<|tool_call_start|>'],
    closes: '<|tool_call_end|>',
    syntax: 'python',
    grammar: {
      opening: '<|tool_call_start|>[',
      call: '$NAME($ARGUMENTS)',
      separator: ', ',
      closing: ']<|tool_call_end|>',
    },
    signs: ['<|tool_call_start|>'],
    // Most templates of the family mention the tools alone.
    tokens: ['<|tool_call_start|>', '<|tool_call_end|>'],
  },
  olmo3: {
    opens: ['<function_calls>'],
    closes: '</function_calls>',
    syntax: 'python',
    grammar: {
      opening: '<function_calls>\n',
      call: '$NAME($ARGUMENTS)',
      separator: '\n',
      closing: '\n</function_calls>',
    },
    signs: ['<function_calls>'],
  },
  nemotron: {
    opens: ['<TOOLCALL>'],
    closes: '</TOOLCALL>',
    syntax: 'json',
    grammar: { opening: '<TOOLCALL>[', call: JSON_CALL, separator: ', ', closing: ']</TOOLCALL>' },
    signs: ['<TOOLCALL>'],
  },
  jamba: {
    opens: ['<tool_calls>'],
    closes: '</tool_calls>',
    syntax: 'json',
    grammar: {
      opening: '<tool_calls>[',
      call: JSON_CALL,
      separator: ', ',
      closing: ']</tool_calls>',
    },
    signs: ['<tool_calls>'],
  },
  gigachat3: {
    opens: ['<|function_call|>'],
    syntax: 'json',
    grammar: { call: `<|function_call|>${JSON_CALL}` },
    signs: ['<|function_call|>'],
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

export type CallFormatName = keyof typeof CALL_FORMATS

/** The row of a family. */
export function callFormat(name: CallFormatName = 'hermes'): CallFormat {
  return CALL_FORMATS[name]
}
