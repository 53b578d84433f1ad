import { CALL_FORMATS, type CallFormatName, callFormat } from './call-formats.ts'

/** How models of a family mark their reasoning. */
export interface ReasoningFormat {
  readonly opens: readonly string[]
  readonly closes: readonly string[]
  /** The tokens between which reasoning is counted; `after` precedes the opening one. */
  readonly tokens?: { readonly open: string; readonly close: string; readonly after?: string }
  readonly signs: readonly string[]
}

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
  seed_oss: {
    opens: ['<seed:think>'],
    closes: ['</seed:think>'],
    tokens: { open: '<seed:think>', close: '</seed:think>' },
    signs: ['</seed:think>'],
  },
  cohere: {
    opens: ['<|START_THINKING|>'],
    closes: ['<|END_THINKING|>'],
    tokens: { open: '<|START_THINKING|>', close: '<|END_THINKING|>' },
    signs: ['<|START_THINKING|>'],
  },
  apertus: {
    opens: ['<|inner_prefix|>'],
    closes: ['<|inner_suffix|>'],
    tokens: { open: '<|inner_prefix|>', close: '<|inner_suffix|>' },
    signs: ['<|inner_prefix|>'],
  },
  apriel: {
    opens: ['Here are my reasoning steps:'],
    closes: ['[BEGIN FINAL RESPONSE]'],
    signs: ['[BEGIN FINAL RESPONSE]'],
  },
  granite: {
    opens: ['Here is my thought process:', "Here's my thought process:"],
    closes: ['Here is my response:', "Here's my response:"],
    signs: ['Here is my thought process'],
  },
} as const satisfies Record<string, ReasoningFormat>

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
export function reasoningFormat(name: ReasoningFormatName): ReasoningFormat {
  return REASONING_FORMATS[name]
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
