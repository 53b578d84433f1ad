/**
 * Dynamic time warping (Sakoe and Chiba 1978): of all paths from the first to the last cell of
 * `scores [rows, columns]` that go down, right or both at each step, the one with the largest sum.
 * Returns the column at which the path enters each row. Costs are float32, as in Whisper's code, so
 * that ties are broken in the same way.
 */
export function findRowStarts(
  scores: Float32Array,
  { rows, columns }: { readonly rows: number; readonly columns: number },
): Int32Array {
  const steps = chooseSteps(scores, rows, columns)
  const starts = new Int32Array(rows)
  let row = rows
  let column = columns
  while (row > 0 && column > 0) {
    starts[row - 1] = column - 1
    const step = steps[(row - 1) * columns + column - 1]
    if (step !== STEP_RIGHT) row -= 1
    if (step !== STEP_DOWN) column -= 1
  }
  return starts
}

const STEP_BOTH = 0
const STEP_DOWN = 1
const STEP_RIGHT = 2

/** The step by which the cheapest path reaches each cell. */
function chooseSteps(scores: Float32Array, rows: number, columns: number): Uint8Array {
  const steps = new Uint8Array(rows * columns)
  // Costs of the previous and the current column; the entry before the first row is at 0.
  let before = new Float32Array(rows + 1).fill(Infinity)
  let costs = new Float32Array(rows + 1)
  before[0] = 0
  for (let column = 0; column < columns; column++) {
    costs[0] = Infinity
    for (let row = 0; row < rows; row++) {
      const both = before[row] as number
      const down = costs[row] as number
      const right = before[row + 1] as number
      let step = STEP_RIGHT
      let cost = right
      if (both < down && both < right) [step, cost] = [STEP_BOTH, both]
      else if (down < both && down < right) [step, cost] = [STEP_DOWN, down]
      costs[row + 1] = cost - (scores[row * columns + column] as number)
      steps[row * columns + column] = step
    }
    ;[before, costs] = [costs, before]
  }
  return steps
}
