import { callFormat } from '#shared/contracts/call-formats.ts'
import type {
  Candidate,
  CandidateDelta,
  EndingRules,
  FinishReason,
  GenerateInput,
  PromptLogprobs,
  ResumePoint,
  TokenLogprob,
} from '#shared/contracts/completion.ts'
import type { FittedAdapter } from '#workers/adapters/fit-adapter.ts'
import type { SampledToken, SequenceEnd, SequenceRequest } from '#workers/engine/types.ts'
import type {
  ConstraintSource,
  FollowingBudget,
  TokenConstraint,
} from '#workers/sampling/constraint/token-constraint.ts'
import { rankOf, scoreToken } from '#workers/sampling/logprobs.ts'
import { type EarlyBan, Sampler } from '#workers/sampling/sampler.ts'
import type { TokenPieces } from '#workers/text/detokenizer.ts'
import { EditFollower, proposeByPromptLookup } from '#workers/text/prompt-lookup.ts'

import { CandidateText } from './candidate-text.ts'
import type { CompletionModel } from './completion-model.ts'
import type { PreparedPrompt } from './completion-prompt.ts'
import type { DeltaOutlet } from './delta-outlet.ts'
import type { ScoreBudget } from './score-budget.ts'
import { sequenceRules } from './sequence-rules.ts'
import {
  namedById,
  type PromptScore,
  presentLogprob,
  presentPromptLogprobs,
  rankPrompt,
  type TokenScore,
} from './token-logprobs.ts'

const SPACE = 0x20

/** The collaborators of one candidate. */
export interface CandidateOptions {
  readonly model: CompletionModel
  readonly input: GenerateInput
  readonly prompt: PreparedPrompt
  readonly index: number
  readonly constraint: ConstraintSource | undefined
  readonly followingBudget: FollowingBudget
  readonly outlet: DeltaOutlet
  readonly scoreBudget: ScoreBudget
}

/** State that the candidates of a job share while they run. */
interface RunScope {
  readonly signal: AbortSignal
  readonly cacheScope: string
  /** Identifies the job. */
  readonly job: object
  readonly adapter?: FittedAdapter
}

/** One candidate from its prompt, or from the point that another worker reached, to its end. */
export class CandidateRun {
  readonly #options: CandidateOptions
  readonly #resume: ResumePoint | undefined
  readonly #constraint: TokenConstraint | undefined
  readonly #endTokenIds: ReadonlySet<number>
  readonly #sampler: Sampler
  readonly #text: CandidateText
  readonly #promptScores: (PromptScore | undefined)[] = []
  /** Alternatives of the prompt's tokens; undefined if their scores are not needed. */
  readonly #promptAlternatives: number | undefined
  #hasEchoed: boolean
  #finishReason: FinishReason | undefined
  /** The token that ended the text and is not part of it. */
  #endToken: SampledToken | undefined
  #cachedTokens = 0

  constructor(options: CandidateOptions) {
    const { model, input, prompt, index } = options
    this.#options = options
    this.#resume = input.resume?.find((point) => point.index === index)
    this.#constraint = options.constraint?.create(options.followingBudget)
    this.#promptAlternatives = promptAlternatives(input, index)
    this.#endTokenIds = endTokensOf(model, input.ending)
    this.#sampler = new Sampler({
      params: input.sampling,
      // Tokens of a source are not part of the generated text.
      promptTokenIds: prompt.source?.startTokenIds ?? prompt.tokenIds,
      candidateIndex: index,
      logprobs: needsScores(input) ? (input.logprobs ?? 0) : null,
      workspace: model.workspace,
      ...(this.#constraint !== undefined && { constraint: this.#constraint }),
      ...this.#earlyBan(),
      rules: sequenceRules(model.text, { input, prompt, endTokenIds: this.#endTokenIds }),
    })
    this.#text = new CandidateText({
      index,
      pieces: answerPieces(model, input),
      continuesText: prompt.continuesText,
      stop: stopsOf(model, input),
      ending: input.ending,
      constraint: this.#constraint,
      keepsScores: () => !options.scoreBudget.isSpent,
    })
    // The text delivered before the resumption started with the echo.
    this.#hasEchoed = !input.echo || this.#resume !== undefined
    for (const tokenId of this.#resume?.tokenIds ?? []) {
      this.#sampler.replay(tokenId)
      this.#text.push(tokenId)
    }
  }

  get tokenIds(): readonly number[] {
    return this.#text.tokenIds
  }

  get cachedTokens(): number {
    return this.#cachedTokens
  }

  meanLogprob(): number {
    return this.#text.meanLogprob(this.#endToken?.logprob)
  }

  async run(scope: RunScope): Promise<void> {
    const { input, prompt, outlet } = this.#options
    const earlierReason = this.#resume?.finishReason
    const isFull = this.tokenIds.length >= prompt.maxNewTokens
    const isOver = earlierReason !== undefined || this.#text.isComplete || isFull
    const wantsPrompt = this.#promptAlternatives !== undefined
    const wantsReplayed = needsScores(input) && this.#resume !== undefined
    // A resumed stream has already delivered its scores, except those of withheld text.
    const hasAll = earlierReason !== undefined || !this.#text.isHeldBack
    const hasSent = input.stream && this.#resume !== undefined && hasAll
    const canSkip = isOver && (hasSent || !(wantsPrompt || wantsReplayed))
    const end = canSkip
      ? undefined
      : await this.#runEngine({
          ...scope,
          maxNewTokens: isOver ? this.tokenIds.length : prompt.maxNewTokens,
          wantsPromptLogits: wantsPrompt || wantsReplayed,
        })
    this.#cachedTokens = end?.cachedTokens ?? 0
    this.#finishReason = earlierReason ?? this.#reasonOf(end)
    this.#echo()
    const last = this.#withEnd(this.#shown(this.#text.finish(this.#finishReason)))
    if (earlierReason === undefined) outlet.add({ ...last, ...this.#endTokenId() })
  }

  /** The whole candidate, once it has ended. */
  present(): Omit<Candidate, 'index'> {
    const { input, prompt } = this.#options
    const logprobs = this.#logprobs()
    return {
      text: (input.echo ? prompt.text : '') + this.#text.text,
      tokenIds: this.tokenIds,
      ...this.#endTokenId(),
      ...(logprobs !== undefined && { logprobs }),
      finishReason: this.#finishReason ?? 'stop',
    }
  }

  /** The scores of the prompt, if the request asks for them. */
  promptLogprobs(): PromptLogprobs {
    const { input, prompt, model } = this.#options
    return rankPrompt(model.text.tokenizer.pieces, prompt.tokenIds, {
      scores: this.#promptScores,
      alternatives: input.promptLogprobs ?? 0,
    })
  }

  async #runEngine(
    options: RunScope & {
      readonly maxNewTokens: number
      readonly wantsPromptLogits: boolean
    },
  ): Promise<SequenceEnd> {
    const { model, prompt } = this.#options
    const delivered = [...this.tokenIds]
    // Tokens whose scores were lost with the other worker are computed as a part of the prompt.
    const rescored = options.wantsPromptLogits ? delivered.length : 0
    const { promptTokenIds, ...embedded } = prompt.embedded ?? { promptTokenIds: prompt.tokenIds }
    const { source } = prompt
    const request: SequenceRequest = {
      ...embedded,
      ...(source !== undefined && { source, promptLogitsFrom: source.length - 1 }),
      promptTokenIds: rescored > 0 ? [...promptTokenIds, ...delivered] : promptTokenIds,
      generatedTokenIds: rescored > 0 ? [] : delivered,
      maxNewTokens: options.maxNewTokens - rescored,
      sampler: {
        next: (logits, position) => this.#choose(logits, position + rescored),
      },
      endTokenIds: this.#endTokenIds,
      cacheScope: options.cacheScope,
      job: options.job,
      ...(options.adapter && { adapter: options.adapter }),
      onToken: (token) => this.#take(token),
      ...(options.wantsPromptLogits && {
        onPromptLogits: (position: number, logits: Float32Array) =>
          this.#scorePrompt(position, logits),
      }),
      ...this.#drafting(),
    }
    return model.engine.run(request, { signal: options.signal })
  }

  #choose(logits: Float32Array, position: number): SampledToken {
    const token = this.#sampler.next(logits, position)
    if (this.#endTokenIds.has(token.tokenId)) this.#endToken = token
    return token
  }

  /** An edit repeats most of its original, so drafting from it is always worthwhile. */
  #drafting(): Pick<SequenceRequest, 'propose'> {
    const { model, prompt } = this.#options
    const { tokenIds: promptTokenIds, originalStart } = prompt
    if (originalStart === undefined) {
      // Embedded images have no tokens that could be repeated.
      const isDrafted = model.draftsFromPrompt && prompt.embedded === undefined
      return isDrafted ? { propose: proposeByPromptLookup } : {}
    }
    const { pieces } = model.text.tokenizer
    const isWordStart = (tokenId: number) => pieces.bytesOf(tokenId)[0] === SPACE
    const follower = new EditFollower({ promptTokenIds, originalStart, isWordStart })
    return { propose: (tokenIds) => follower.propose(tokenIds) }
  }

  /** End tokens are banned until the answer has its minimum length. */
  #earlyBan(): { readonly earlyBan?: EarlyBan } {
    const tokens = this.#options.input.ending?.minTokens ?? 0
    if (tokens === 0 || this.#endTokenIds.size === 0) return {}
    return { earlyBan: { tokens, tokenIds: this.#endTokenIds } }
  }

  #take(token: SampledToken): boolean {
    this.#echo()
    const score = token.logprob === undefined ? undefined : scoreOf(token, token.logprob)
    const { input, outlet, scoreBudget } = this.#options
    if (input.logprobs !== null) {
      const count = 1 + input.logprobs
      if (input.stream) scoreBudget.add(count)
      else scoreBudget.charge(count)
    }
    outlet.add(this.#shown(this.#text.push(token.tokenId, score)))
    return !this.#text.isComplete
  }

  #scorePrompt(position: number, logits: Float32Array): void {
    const { prompt, input } = this.#options
    const next = position + 1
    const alternatives = input.logprobs ?? 0
    const promptToken = prompt.tokenIds[next]
    if (promptToken !== undefined) {
      const count = this.#promptAlternatives
      if (count === undefined) return
      const rank = rankOf(logits, promptToken)
      this.#promptScores[next] = { ...scoreToken(logits, promptToken, count), rank }
      return
    }
    const order = next - prompt.tokenIds.length
    const replayed = this.#resume?.tokenIds[order]
    if (replayed !== undefined) {
      this.#text.setScore(order, scoreToken(logits, replayed, alternatives))
      return
    }
    // The reason for the end is not stored: it is computed again, which leads to the same token.
    const hasEnded = this.#resume?.finishReason === 'stop' && !this.#text.isComplete
    if (hasEnded) this.#choose(Float32Array.from(logits), order)
  }

  /** Sends the prompt before the first token. */
  #echo(): void {
    if (this.#hasEchoed) return
    this.#hasEchoed = true
    const { prompt, outlet, index } = this.#options
    const logprobs = this.#promptLogprobs()
    outlet.add({ index, text: prompt.text, tokenIds: [], ...(logprobs && { logprobs }) })
  }

  #reasonOf(end: SequenceEnd | undefined): FinishReason {
    return this.#text.isComplete || end?.reason === 'endOfText' ? 'stop' : 'length'
  }

  #promptLogprobs(): readonly TokenLogprob[] | undefined {
    const { input, prompt, model } = this.#options
    if (!input.echo || input.logprobs === null) return undefined
    const { pieces } = model.text.tokenizer
    const scored = { scores: this.#promptScores, alternatives: input.logprobs }
    return this.#named(presentPromptLogprobs(pieces, prompt, scored))
  }

  /** The result of a long stream does not repeat its scores, which were sent with their tokens. */
  #logprobs(): TokenLogprob[] | undefined {
    const { input, scoreBudget } = this.#options
    if (input.logprobs === null || scoreBudget.isSpent) return undefined
    const own = this.#text.logprobs()
    if (own === undefined) return undefined
    return [...(this.#promptLogprobs() ?? []), ...this.#named(own), ...this.#endLogprobs()]
  }

  /**
   * The score at the end of a text: a request for one token to score a prompt expects an entry
   * there, for any token. The tokens of a chat are those of its message.
   */
  #endLogprobs(): readonly TokenLogprob[] {
    const { input, model } = this.#options
    const { tokenId, logprob } = this.#endToken ?? {}
    const isChat = input.prompts.some(({ form }) => form === 'chat')
    if (tokenId === undefined || logprob === undefined || isChat) return []
    const score = { logprob, top: this.#endToken?.top ?? [] }
    return this.#named([presentLogprob(model.text.tokenizer.pieces, tokenId, score)])
  }

  #withEnd(delta: CandidateDelta): CandidateDelta {
    const end = this.#options.input.logprobs === null ? [] : this.#endLogprobs()
    return end.length === 0 ? delta : { ...delta, logprobs: [...(delta.logprobs ?? []), ...end] }
  }

  #endTokenId(): { readonly endTokenId?: number } {
    if (this.#options.input.returnsPromptTokens !== true || this.#endToken === undefined) return {}
    return { endTokenId: this.#endToken.tokenId }
  }

  /** Scores that only rank the candidates are not sent. */
  #shown(delta: CandidateDelta): CandidateDelta {
    const { logprobs, ...rest } = delta
    if (this.#options.input.logprobs === null || logprobs === undefined) return rest
    return { ...rest, logprobs: this.#named(logprobs) }
  }

  #named(entries: readonly TokenLogprob[]): readonly TokenLogprob[] {
    return this.#options.input.namesTokensById === true ? entries.map(namedById) : entries
  }
}

/** The pieces of an answer; markers of a chat's dialect are visible text. */
function answerPieces(model: CompletionModel, { prompts }: GenerateInput): TokenPieces {
  const chats = prompts.filter((prompt) => prompt.form === 'chat')
  if (chats.length === 0) return model.text.tokenizer.pieces
  const hasTools = chats.some(
    ({ tools = [], toolChoice }) => tools.length > 0 && toolChoice !== 'none',
  )
  return hasTools ? model.answerPieces.withTools : model.answerPieces.withoutTools
}

/** A single call is enforced by ending at its closing text. */
function stopsOf({ dialect }: CompletionModel, input: GenerateInput): readonly string[] {
  if (input.endsAfterCall !== true) return input.stop
  const { closes } = callFormat(dialect.calls)
  return closes === undefined ? input.stop : [...input.stop, closes]
}

function endTokensOf({ text }: CompletionModel, rules: EndingRules = {}): ReadonlySet<number> {
  const { stopTokenIds = [], ignoresEndOfText = false } = rules
  if (stopTokenIds.length === 0 && !ignoresEndOfText) return text.endTokenIds
  return new Set([...(ignoresEndOfText ? [] : text.endTokenIds), ...stopTokenIds])
}

/** The first candidate of each prompt scores it, unless all of them return it. */
function promptAlternatives(input: GenerateInput, index: number): number | undefined {
  const { echo, logprobs, promptLogprobs, bestOf } = input
  const echoed = echo ? logprobs : null
  const ranked = index % bestOf === 0 ? promptLogprobs : undefined
  if (echoed === null && ranked === undefined) return undefined
  return Math.max(echoed ?? 0, ranked ?? 0)
}

function needsScores(input: GenerateInput): boolean {
  return input.logprobs !== null || input.bestOf > input.n
}

function scoreOf({ top }: SampledToken, logprob: number): TokenScore {
  return { logprob, top: top ?? [] }
}
