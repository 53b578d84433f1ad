/** A text's words, in small letters. */
export function wordsOf(text: string): string[] {
  return text
    .toLowerCase()
    .replace(/[^\p{L}\p{N} ]/gu, '')
    .split(' ')
    .filter((word) => word !== '')
}

/** Words to change, leave out or put in (Levenshtein distance); letters and digits alone count. */
export function wordErrors(transcript: string, said: string): number {
  const [found, wanted] = [wordsOf(transcript), wordsOf(said)]
  let row = wanted.map((_, at) => at + 1)
  row.unshift(0)
  for (const [at, word] of found.entries()) {
    const next = [at + 1]
    for (const [column, other] of wanted.entries()) {
      const changed = (row[column] as number) + (word === other ? 0 : 1)
      next.push(Math.min(changed, (row[column + 1] as number) + 1, (next[column] as number) + 1))
    }
    row = next
  }
  return row.at(-1) as number
}
