import type { AnswerDialect } from './answer-formats.ts'
import type { TagFormat } from './structural-tag.ts'

/** A chat message, reduced to the fields that a chat template reads. */
export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool'
  readonly content: string
  /** The reasoning of an answer before its content. */
  readonly reasoning?: string
  /** Images of the content, in order. */
  readonly images?: readonly MessageImage[]
  readonly name?: string
  readonly toolCalls?: readonly ChatToolCall[]
  readonly toolCallId?: string
}

/** An image within the content of a message. */
export interface MessageImage {
  /** The number of characters of the content before it. */
  readonly at: number
  /** The key of its file in object storage, which exists until the request ends. */
  readonly key: string
  /** The field of the request that holds the image, for error messages. */
  readonly path: string
  /**
   * `low` takes few tokens, `high` as many as the model has for the size of the image; default
   * `high`.
   */
  readonly detail?: 'low' | 'high'
}

/** A tool call of an assistant message; `arguments` is JSON text. */
export interface ChatToolCall {
  readonly id: string
  readonly name: string
  readonly arguments: string
}

/** A function that the model may call; `parameters` is a JSON Schema. */
export interface ToolDefinition {
  readonly name: string
  readonly description?: string
  readonly parameters?: object
  /** Calls must follow the schema; a schema that cannot be enforced is refused. */
  readonly isStrict?: boolean
  /** The field of the request that holds the schema, for error messages. */
  readonly schemaPath?: string
}

/** `auto` lets the model choose; `required` and a name are enforced by constrained decoding. */
export type ToolChoice = 'none' | 'auto' | 'required' | { readonly name: string }

/** The input of the model. */
export type Prompt =
  | { readonly form: 'text'; readonly text: string }
  | { readonly form: 'tokenIds'; readonly tokenIds: readonly number[] }
  | {
      readonly form: 'chat'
      readonly messages: readonly ChatMessage[]
      readonly tools?: readonly ToolDefinition[]
      readonly toolChoice?: ToolChoice
      readonly template?: TemplateOptions
      /** The oldest messages are dropped when the chat is too long for the model. */
      readonly isTruncated?: boolean
    }
  | { readonly form: 'edit'; readonly input: string; readonly instruction: string }

/** Options of the chat template. */
export interface TemplateOptions {
  /** False leaves out the generation prompt, which opens the assistant's message. */
  readonly opensAnswer?: boolean
  /** The answer continues the last message. */
  readonly continuesLast?: boolean
  /** Variables that the chat template may read; others have no effect. */
  readonly variables?: Readonly<Record<string, string | number | boolean>>
}

/**
 * A request field that guides a model only if its chat template reads one of the variables or, for
 * a field about reasoning, if the model reasons. Otherwise the worker reports the field as ignored.
 */
export interface Hint {
  readonly field: string
  /** Names of the variables in `TemplateOptions` that the field sets. */
  readonly variables: readonly string[]
  /** The limit of reasoning tokens; null for no limit; absent for fields that set none. */
  readonly thinkingTokensMax?: number | null
  /** The value requests the default behaviour, so the field is never reported as ignored. */
  readonly isUsual?: boolean
}

/** Conditions that end an answer besides the model's end tokens and stop strings. */
export interface EndingRules {
  /** End tokens do not end the answer. */
  readonly ignoresEndOfText?: boolean
  /** Additional end tokens, which are not part of the answer. */
  readonly stopTokenIds?: readonly number[]
  /** Only the length limit ends an answer with fewer tokens. */
  readonly minTokens?: number
  /** The matched stop string is part of the text. */
  readonly keepsStopString?: boolean
}

/** Restricts the tokens of an answer. */
export interface TokenRules {
  /** Only these tokens are chosen, besides the tokens that end the answer after the first one. */
  readonly allowedTokenIds?: readonly number[]
  /** Texts that may not occur at the beginning of the answer or of a word. */
  readonly badWords?: readonly string[]
}

/** Sampling parameters; every field changes the outcome. */
export interface SamplingParams {
  /** 0 is greedy. */
  readonly temperature: number
  readonly topP: number
  /** 0 is off. */
  readonly topK: number
  /** 0 is off. */
  readonly minP: number
  readonly presencePenalty: number
  readonly frequencyPenalty: number
  /** 1 is off. */
  readonly repetitionPenalty: number
  /** Token id (as a string, for JSON) to a value from -100 to 100 added to its logit. */
  readonly logitBias: Readonly<Record<string, number>>
  /** The random stream of candidate `i` is a function of `seed`, `i` and the position. */
  readonly seed: number
}

/** Sampling parameters that a model's files may set where a request is silent. */
export type SamplingDefaults = Partial<
  Pick<SamplingParams, 'temperature' | 'topP' | 'topK' | 'minP' | 'repetitionPenalty'>
>

/** The format of the answer, which constrained decoding enforces. */
export type ResponseFormat =
  | { readonly type: 'text' }
  | { readonly type: 'jsonObject' }
  | {
      readonly type: 'jsonSchema'
      readonly schema: object
      /** The field of the request that holds the schema, for error messages. */
      readonly path?: string
      /**
       * A schema that cannot be enforced is refused. Without strictness the answer is then any
       * JSON, or any object if the schema describes one, and the worker reports it.
       */
      readonly isStrict?: boolean
    }
  /** One of the given texts. */
  | { readonly type: 'choice'; readonly choices: readonly string[] }
  /** A text that matches the whole ECMAScript pattern; `path` is the field of the request. */
  | { readonly type: 'regex'; readonly pattern: string; readonly path: string }
  /** A text of a context-free grammar in GBNF; `path` is the field of the request. */
  | { readonly type: 'grammar'; readonly grammar: string; readonly path: string }
  /** Free text with parts between tags; `path` is the field of the request. */
  | { readonly type: 'structuralTag'; readonly format: TagFormat; readonly path: string }

/** A low-rank adapter of the model, which the worker loads when a job names it. */
export interface AdapterReference {
  /** Identifies the weights: different weights have different ids. */
  readonly id: string
  /** A folder, `s3:<prefix>` or `hub:<owner>/<repo>[@revision]`, in PEFT's form. */
  readonly source: string
}

/** Languages of a translation, as requests name them. */
export interface TranslationLanguages {
  readonly source?: string
  readonly target?: string
}

/** Generation of one or more candidates for one or more prompts. */
export interface GenerateInput {
  readonly task: 'generate'
  readonly prompts: readonly Prompt[]
  readonly adapter?: AdapterReference
  /** Candidates returned per prompt; candidate `k` of prompt `p` has index `p * n + k`. */
  readonly n: number
  /**
   * Candidates generated per prompt, of which the `n` with the highest mean log-probability are
   * returned.
   */
  readonly bestOf: number
  /** Null means the rest of the context window. */
  readonly maxTokens: number | null
  readonly sampling: SamplingParams
  /** Parameters that the request leaves out: the defaults of the model apply to them. */
  readonly unsetSampling?: readonly (keyof SamplingDefaults)[]
  readonly stop: readonly string[]
  /** An answer ends with its first call, where the model's format marks the end of calls. */
  readonly endsAfterCall?: boolean
  readonly ending?: EndingRules
  readonly hints?: readonly Hint[]
  /** Only for models that translate between languages. */
  readonly languages?: TranslationLanguages
  readonly tokenRules?: TokenRules
  /**
   * Also return the token ids of the prompts and of end tokens. A stream has them in `started`,
   * other answers in the result.
   */
  readonly returnsPromptTokens?: boolean
  /** Log-probabilities name a token `token_id:` plus its id. */
  readonly namesTokensById?: boolean
  /** Only requests with the same salt share cached prefixes and grammars. */
  readonly cacheSalt?: string
  /** Alternatives per position; null for no log-probabilities, 0 for the chosen token only. */
  readonly logprobs: number | null
  /** Also return the prompt (and its log-probabilities). */
  readonly echo: boolean
  /**
   * Also return the log-probabilities of the prompts' tokens, with this many alternatives per
   * position. Streams never return them.
   */
  readonly promptLogprobs?: number
  readonly responseFormat: ResponseFormat
  /** Whether deltas are sent as they are generated; otherwise only checkpoints are. */
  readonly stream: boolean
  /** Tokens already delivered, by candidate index; set by the owner on a resubmission. */
  readonly resume?: readonly ResumePoint[]
}

/** The state of one candidate when its worker was lost. */
export interface ResumePoint {
  readonly index: number
  readonly tokenIds: readonly number[]
  /** Set when this candidate had ended. */
  readonly finishReason?: FinishReason
}

/** Scores documents by query likelihood, for the deprecated search endpoint. */
export interface ScoreInput {
  readonly task: 'score'
  readonly adapter?: AdapterReference
  readonly query: string
  readonly documents: readonly string[]
}

/** Tokenizes a text or chat. */
export interface TokenizeInput {
  readonly task: 'tokenize'
  readonly prompt: Extract<Prompt, { readonly form: 'text' | 'chat' }>
  /** Whether the tokenizer adds its own special tokens around the text or the rendered template. */
  readonly addSpecialTokens: boolean
  /** Whether the text of every token is returned too. */
  readonly withTexts: boolean
}

/** Detokenizes token ids. */
export interface DetokenizeInput {
  readonly task: 'detokenize'
  readonly tokenIds: readonly number[]
}

/** The inputs of a completion queue. */
export type CompletionInput = GenerateInput | ScoreInput | TokenizeInput | DetokenizeInput

/** The reason for which a text ended. */
export type FinishReason = 'stop' | 'length' | 'toolCalls'

/** One token with its log-probability and the likeliest alternatives, best first. */
export interface TokenLogprob {
  readonly tokenId: number
  readonly token: string
  /** The token's UTF-8 bytes; it may hold only a part of a character. */
  readonly bytes: readonly number[]
  /** Null for the first token of an echoed prompt, because no token precedes it. */
  readonly logprob: number | null
  readonly top: readonly {
    readonly tokenId: number
    readonly token: string
    readonly bytes: readonly number[]
    readonly logprob: number
  }[]
}

/** A token that a prompt has or could have had at a position; the likeliest has rank 1. */
export interface RankedToken {
  readonly tokenId: number
  readonly token: string
  readonly logprob: number
  readonly rank: number
}

/**
 * For each token of a prompt: the token itself and the likeliest others, best first. Null for the
 * first token, because no token precedes it.
 */
export type PromptLogprobs = readonly (readonly RankedToken[] | null)[]

/** The progress of one candidate since its last delta. */
export interface CandidateDelta {
  readonly index: number
  readonly text: string
  readonly tokenIds: readonly number[]
  readonly logprobs?: readonly TokenLogprob[]
  /** The token that ended the text and is not part of it; only in the last delta. */
  readonly endTokenId?: number
  /** Present in the candidate's last delta. */
  readonly finishReason?: FinishReason
}

/** A complete candidate; `text` includes the prompt when `echo` is set. */
export interface Candidate {
  readonly index: number
  readonly text: string
  readonly tokenIds: readonly number[]
  /** The token that ended the text and is not part of it. */
  readonly endTokenId?: number
  readonly logprobs?: readonly TokenLogprob[]
  readonly finishReason: FinishReason
}

/** The results of a completion queue. */
export type CompletionResult =
  | {
      readonly task: 'generate'
      readonly candidates: readonly Candidate[]
      readonly promptTokenIds?: readonly (readonly number[])[]
      /** Log-probabilities of each prompt. */
      readonly promptLogprobs?: readonly PromptLogprobs[]
      /** How the model writes its answers, for answers to a chat. */
      readonly dialect?: AnswerDialect
    }
  | {
      readonly task: 'score'
      /** Raw scores in document order: unrounded, possibly negative. */
      readonly scores: readonly number[]
    }
  | {
      readonly task: 'tokenize'
      readonly tokenIds: readonly number[]
      readonly texts?: readonly string[]
      readonly contextLength: number
    }
  | { readonly task: 'detokenize'; readonly text: string }
