import { CancelledError } from '#shared/errors.ts'
import { defined } from '#shared/json.ts'
import { Batcher } from '#workers/embedding/batcher.ts'
import type { DecoderRun } from '#workers/engine/encoder-decoder/decoder-run.ts'
import { uniformAt } from '#workers/sampling/counter-random.ts'
import { drawToken } from '#workers/sampling/draw.ts'
import { logprobOf } from '#workers/sampling/logprobs.ts'
import { argmax } from '#workers/sampling/select.ts'

import type { SpeechDecoder, WindowStates } from './speech-decoder.ts'
import type { TokenRule } from './token-rules.ts'

/** A request for one answer to one window. */
export interface AnswerRequest {
  readonly window: WindowStates
  readonly prompt: readonly number[]
  readonly rules: readonly TokenRule[]
  /** 0 always takes the likeliest token. */
  readonly temperature: number
  readonly tokensMax: number
  readonly endOfText: number
  /** A token whose probability after the prompt's token at `at` is returned as well. */
  readonly probe?: { readonly at: number; readonly tokenId: number } | undefined
}

/** The tokens of an answer, without the end token. */
export interface Answer {
  readonly tokenIds: readonly number[]
  /** The log-probability of each of them. */
  readonly logprobs: readonly number[]
  /** Mean over the tokens, including the end token. */
  readonly averageLogprob: number
  /** Probability of the probed token; 0 without a probe. */
  readonly probed: number
}

/** Decodes answers; those whose prompts have equal length share their runs. */
export interface AnswerDecoder {
  decode(request: AnswerRequest, signal: AbortSignal): Promise<Answer>
}

const ROWS_MAX = 8
const ROWS_IN_VAIN_MAX = 8

/** Rows of one run are at the same position, so each prompt length has its own batches. */
export function createAnswerDecoder(decoder: SpeechDecoder): AnswerDecoder {
  const rowsMax = decoder.isRowCoupled ? 1 : ROWS_MAX
  const batchers = new Map<number, Batcher<Row, void>>()
  const batcherFor = (length: number): Batcher<Row, void> => {
    const known = batchers.get(length)
    if (known !== undefined) return known
    const made = new Batcher<Row, void>({
      maxBatchTokens: rowsMax,
      maxBatchSize: rowsMax,
      poolSize: decoder.poolSize,
      lengthOf: () => 1,
      run: async (rows, isAlone) => {
        for (const group of groupByPositions(rows)) await decodeRows(decoder, group, isAlone)
        return rows.map(() => undefined)
      },
    })
    // There are as many batches as prompt lengths.
    batchers.set(length, made)
    return made
  }
  return {
    decode: (request, signal) =>
      new Promise((resolve, reject) => {
        const row = new Row(request, signal, resolve, reject)
        batcherFor(request.prompt.length).submit(row, signal).catch(reject)
      }),
  }
}

/** An answer in progress. It is delivered when complete, while others of its run continue. */
class Row {
  readonly request: AnswerRequest
  readonly tokenIds: number[] = []
  isFinished = false
  readonly #logprobs: number[] = []
  #logprobSum = 0
  #probed = 0
  readonly #signal: AbortSignal
  readonly #resolve: (answer: Answer) => void
  readonly #reject: (reason: unknown) => void

  constructor(
    request: AnswerRequest,
    signal: AbortSignal,
    resolve: (answer: Answer) => void,
    reject: (reason: unknown) => void,
  ) {
    this.request = request
    this.#signal = signal
    this.#resolve = resolve
    this.#reject = reject
  }

  probe(logits: Float32Array): void {
    const { probe } = this.request
    if (probe !== undefined) this.#probed = Math.exp(logprobOf(logits, probe.tokenId))
  }

  /** Chooses the next token. */
  take(logits: Float32Array): void {
    if (this.#signal.aborted) {
      this.isFinished = true
      this.#reject(new CancelledError())
      return
    }
    const { rules, temperature, tokensMax, endOfText } = this.request
    for (const rule of rules) rule(logits, this.tokenIds)
    const tokenId =
      temperature === 0 ? argmax(logits) : draw(logits, temperature, this.tokenIds.length)
    if (tokenId < 0) throw new Error('the model produced no finite logits')
    const logprob = logprobOf(logits, tokenId)
    this.#logprobSum += logprob
    if (tokenId !== endOfText) {
      this.tokenIds.push(tokenId)
      this.#logprobs.push(logprob)
    }
    if (tokenId === endOfText || this.tokenIds.length >= tokensMax) this.#finish()
  }

  #finish(): void {
    this.isFinished = true
    this.#resolve({
      tokenIds: this.tokenIds,
      logprobs: this.#logprobs,
      averageLogprob: this.#logprobSum / (this.tokenIds.length + 1),
      probed: this.#probed,
    })
  }
}

/** The windows of a run have one length; in some models that is the length of their sound. */
function groupByPositions(rows: readonly Row[]): readonly (readonly Row[])[] {
  const groups = new Map<number, Row[]>()
  for (const row of rows) {
    const { positions } = row.request.window
    groups.set(positions, [...(groups.get(positions) ?? []), row])
  }
  return [...groups.values()]
}

async function decodeRows(
  decoder: SpeechDecoder,
  all: readonly Row[],
  isAlone: boolean,
): Promise<void> {
  const run = await decoder.begin(
    all.map(({ request }) => request.prompt),
    all.map(({ request }) => request.window),
    isAlone,
  )
  try {
    for (const [index, row] of all.entries()) {
      if (row.request.probe !== undefined) row.probe(run.logits(index, row.request.probe.at))
    }
    await decodeToTheEnd(run, all)
  } finally {
    run.dispose()
  }
}

async function decodeToTheEnd(run: DecoderRun, all: readonly Row[]): Promise<void> {
  let rows = [...all]
  let computedInVain = 0
  for (;;) {
    for (const [index, row] of rows.entries()) if (!row.isFinished) row.take(run.logits(index))
    const going = [...rows.keys()].filter((index) => !defined(rows[index]).isFinished)
    if (going.length === 0) return
    computedInVain += rows.length - going.length
    // Copying the cache of the remaining rows costs as much as computing a few ended ones, so ended
    // rows stay for a while.
    if (going.length <= rows.length / 2 && computedInVain > ROWS_IN_VAIN_MAX) {
      run.keep(going)
      rows = going.map((index) => defined(rows[index]))
      computedInVain = 0
    }
    await run.step(rows.map(({ tokenIds, request }) => tokenIds.at(-1) ?? request.endOfText))
  }
}

/**
 * A random token as a function of logits and position, so that a job that runs again gives the same
 * text.
 */
function draw(logits: Float32Array, temperature: number, position: number): number {
  const params = { temperature, topK: 0, topP: 1, minP: 0 }
  return drawToken(logits, params, uniformAt(0, 0, position))
}
