/** Counts how often everything else in the process has its turn, until `end` is called. */
export function countTurns(): { end(): number } {
  let turns = 0
  let next = setImmediate(function turn() {
    turns += 1
    next = setImmediate(turn)
  })
  return {
    end() {
      clearImmediate(next)
      return turns
    },
  }
}
