import type { Clock } from '#shared/clock.ts'
import type { CandidateDelta } from '#shared/contracts/completion.ts'

import type { JobReplies } from './processor-row.ts'

const CHECKPOINT_INTERVAL_MS = 500

/**
 * Sends the deltas of a job: at once when they are streamed, else joined per candidate every half
 * second, so that a lost worker costs half a second of work at most.
 */
export class DeltaOutlet {
  readonly #isStreamed: boolean
  readonly #reply: JobReplies<'completion'>
  readonly #clock: Clock
  readonly #gathered = new Map<number, CandidateDelta>()
  #lastSentAt: number

  constructor(options: {
    readonly isStreamed: boolean
    readonly reply: JobReplies<'completion'>
    readonly clock: Clock
  }) {
    this.#isStreamed = options.isStreamed
    this.#reply = options.reply
    this.#clock = options.clock
    this.#lastSentAt = options.clock.monotonic()
  }

  add(delta: CandidateDelta): void {
    this.#reply.noteTokens?.(delta.index, delta.tokenIds.length)
    if (this.#isStreamed) {
      this.#reply.delta([delta])
      return
    }
    this.#gathered.set(delta.index, join(this.#gathered.get(delta.index), delta))
    const now = this.#clock.monotonic()
    if (now - this.#lastSentAt < CHECKPOINT_INTERVAL_MS) return
    this.#lastSentAt = now
    this.#reply.delta([...this.#gathered.values()])
    this.#gathered.clear()
  }
}

/** A checkpoint carries no log-probabilities: the result has them all. */
function join(earlier: CandidateDelta | undefined, later: CandidateDelta): CandidateDelta {
  return {
    index: later.index,
    text: (earlier?.text ?? '') + later.text,
    tokenIds: [...(earlier?.tokenIds ?? []), ...later.tokenIds],
    ...(later.finishReason !== undefined && { finishReason: later.finishReason }),
  }
}
