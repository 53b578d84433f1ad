/** The seed of every random case of a run: drawn by `vitest.config.ts`, or set to repeat a run. */
export const SEED = Number(process.env.FUZZ_SEED ?? 1)

/** Random numbers from 0 to 1 that the seed repeats (mulberry32). */
export function createRandom(seed = SEED): () => number {
  let state = seed | 0
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}
