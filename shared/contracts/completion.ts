/** A message of a chat, reduced to what a chat template can read. */
export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool'
  readonly content: string
  readonly name?: string
  readonly toolCalls?: readonly ChatToolCall[]
  readonly toolCallId?: string
}

/** A call that an assistant message made; `arguments` is the JSON text. */
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
  /** Calls must follow the schema: one that cannot be enforced is refused. */
  readonly isStrict?: boolean
}

/** `auto` leaves the choice to the model; `required` and a name are enforced while decoding. */
export type ToolChoice = 'none' | 'auto' | 'required' | { readonly name: string }

/** What the model reads. */
export type Prompt =
  | { readonly form: 'text'; readonly text: string }
  | { readonly form: 'tokenIds'; readonly tokenIds: readonly number[] }
  | {
      readonly form: 'chat'
      readonly messages: readonly ChatMessage[]
      readonly tools?: readonly ToolDefinition[]
      readonly toolChoice?: ToolChoice
      readonly template?: TemplateOptions
    }
  | { readonly form: 'edit'; readonly input: string; readonly instruction: string }

/** How a chat template is used, where not in the usual way. */
export interface TemplateOptions {
  /** False leaves out the marker that opens the assistant's turn. */
  readonly opensAnswer?: boolean
  /** The answer goes on where the last message stops. */
  readonly continuesLast?: boolean
  /** Switches of the template itself; a name that it does not know is refused. */
  readonly variables?: Readonly<Record<string, string | number | boolean>>
}

/** When an answer ends, beyond the model's own end and stop strings; what is absent changes nothing. */
export interface EndingRules {
  /** The model's end tokens are tokens like others. */
  readonly ignoresEndOfText?: boolean
  /** Further tokens that end an answer and are no part of it. */
  readonly stopTokenIds?: readonly number[]
  /** Only the length ends an answer that has fewer tokens. */
  readonly minTokens?: number
  /** The stop string that was met is a part of the text. */
  readonly keepsStopString?: boolean
}

/** How the next token is chosen; every field changes the outcome. */
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
  /** The random stream of candidate `i` is a function of `seed`, `i` and the position alone. */
  readonly seed: number
}

/** What the answer must be; enforced by constrained decoding. */
export type ResponseFormat =
  | { readonly type: 'text' }
  | { readonly type: 'jsonObject' }
  | { readonly type: 'jsonSchema'; readonly schema: object }

/** Generation of one or more candidates for one or more prompts. */
export interface GenerateInput {
  readonly task: 'generate'
  readonly prompts: readonly Prompt[]
  /** Candidates returned per prompt; candidate `k` of prompt `p` has index `p * n + k`. */
  readonly n: number
  /** Candidates generated per prompt, of which the `n` likeliest per token are returned. */
  readonly bestOf: number
  /** Null means the rest of the context window. */
  readonly maxTokens: number | null
  readonly sampling: SamplingParams
  readonly stop: readonly string[]
  readonly ending?: EndingRules
  /** Alternatives per position; null means none are wanted, 0 the chosen token alone. */
  readonly logprobs: number | null
  /** Also return the prompt (and its log-probabilities). */
  readonly echo: boolean
  readonly responseFormat: ResponseFormat
  /** Whether deltas are wanted as they arise; otherwise only checkpoints cross the wire. */
  readonly stream: boolean
  /** Tokens already delivered, by candidate index; set by the owner on a resubmission. */
  readonly resume?: readonly ResumePoint[]
}

/** Where one candidate stood when its worker was lost. */
export interface ResumePoint {
  readonly index: number
  readonly tokenIds: readonly number[]
  /** Set when this candidate had already ended. */
  readonly finishReason?: FinishReason
}

/** Scores of documents against a query by query likelihood, for the deprecated search endpoint. */
export interface ScoreInput {
  readonly task: 'score'
  readonly query: string
  readonly documents: readonly string[]
}

/** A text or chat as the model's token ids. */
export interface TokenizeInput {
  readonly task: 'tokenize'
  readonly prompt: Extract<Prompt, { readonly form: 'text' | 'chat' }>
  /** Whether the tokenizer puts its own markers around the text, or around that of the template. */
  readonly addSpecialTokens: boolean
  /** Whether the text of every token is wanted too. */
  readonly withTexts: boolean
}

/** The text of token ids. */
export interface DetokenizeInput {
  readonly task: 'detokenize'
  readonly tokenIds: readonly number[]
}

/** What a queue of texts is asked. */
export type CompletionInput = GenerateInput | ScoreInput | TokenizeInput | DetokenizeInput

/** Why a text ended. */
export type FinishReason = 'stop' | 'length' | 'toolCalls'

/** One token with its log-probability and the likeliest alternatives, best first. */
export interface TokenLogprob {
  readonly tokenId: number
  readonly token: string
  /** The token's UTF-8 bytes, which may be a part of a character. */
  readonly bytes: readonly number[]
  /** Null for the first token of an echoed prompt: nothing precedes it. */
  readonly logprob: number | null
  readonly top: readonly {
    readonly tokenId: number
    readonly token: string
    readonly bytes: readonly number[]
    readonly logprob: number
  }[]
}

/** What one candidate gained since its last delta. */
export interface CandidateDelta {
  readonly index: number
  readonly text: string
  readonly tokenIds: readonly number[]
  readonly logprobs?: readonly TokenLogprob[]
  /** Present in the candidate's last delta. */
  readonly finishReason?: FinishReason
}

/** A whole candidate; `text` includes the prompt when `echo` was asked for. */
export interface Candidate {
  readonly index: number
  readonly text: string
  readonly tokenIds: readonly number[]
  readonly logprobs?: readonly TokenLogprob[]
  readonly finishReason: FinishReason
}

/** What a queue of texts answers. */
export type CompletionResult =
  | { readonly task: 'generate'; readonly candidates: readonly Candidate[] }
  | {
      readonly task: 'score'
      /** Raw scores in document order: may be negative, unrounded. */
      readonly scores: readonly number[]
    }
  | {
      readonly task: 'tokenize'
      readonly tokenIds: readonly number[]
      readonly texts?: readonly string[]
      readonly contextLength: number
    }
  | { readonly task: 'detokenize'; readonly text: string }
