/** A ratio of two things measured in one run, with what it should be. */
export interface Figure {
  readonly name: string
  readonly unit: string
  readonly ours: number
  readonly theirs: number
  readonly target: { readonly atLeast: number } | { readonly atMost: number }
}

/** Whether the ratio ours ÷ theirs meets its target. */
export function isMet({ ours, theirs, target }: Figure): boolean {
  const ratio = ours / theirs
  return 'atLeast' in target ? ratio >= target.atLeast : ratio <= target.atMost
}

/** One line: met or short, the ratio, its target and the two raw numbers. */
export function describeFigure(figure: Figure): string {
  const { name, unit, ours, theirs, target } = figure
  const wanted = 'atLeast' in target ? `≥ ${target.atLeast}` : `≤ ${target.atMost}`
  const verdict = isMet(figure) ? 'met  ' : 'SHORT'
  const raw = `${ours.toFixed(2)} and ${theirs.toFixed(2)} ${unit}`
  return `${verdict} ${(ours / theirs).toFixed(2)} (${wanted})  ${name}: ${raw}`
}
