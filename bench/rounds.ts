import { median } from './support/quantile.ts'

const ROUNDS = 5

/** The medians of two sides that alternate, so that both see the same machine. */
export async function alternate(
  ours: () => Promise<number>,
  theirs: () => Promise<number>,
): Promise<{ readonly ours: number; readonly theirs: number }> {
  const found = { ours: [] as number[], theirs: [] as number[] }
  // The first round warms both up.
  for (let round = 0; round <= ROUNDS; round += 1) {
    const measured = { ours: await ours(), theirs: await theirs() }
    if (round === 0) continue
    found.ours.push(measured.ours)
    found.theirs.push(measured.theirs)
  }
  return { ours: median(found.ours), theirs: median(found.theirs) }
}
