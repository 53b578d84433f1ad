import type { CandidateDelta, FinishReason, ResumePoint } from '#shared/contracts/completion.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'

/** The delivered tokens of each candidate, after which another run continues. */
export class ResumePoints {
  readonly #points = new Map<number, { tokenIds: number[]; finishReason?: FinishReason }>()

  /** Adds the tokens of an earlier resumption. */
  add(deltas: readonly CandidateDelta[]): void {
    for (const { index, tokenIds, finishReason } of deltas) {
      let point = this.#points.get(index)
      if (point === undefined) {
        point = { tokenIds: [] }
        this.#points.set(index, point)
      }
      for (const tokenId of tokenIds) point.tokenIds.push(tokenId)
      if (finishReason !== undefined) point.finishReason = finishReason
    }
  }

  /** The input of the next run; other kinds than generation begin anew. */
  applyTo(envelope: JobEnvelope): JobEnvelope['input'] {
    const { input } = envelope
    if (input.task !== 'generate' || !('prompts' in input) || this.#points.size === 0) return input
    const resume: ResumePoint[] = [...this.#points]
      .toSorted(([a], [b]) => a - b)
      .map(([index, point]) => ({ index, ...point, tokenIds: [...point.tokenIds] }))
    return { ...input, resume }
  }
}
