const ROUNDS = 10
const MULTIPLIER_0 = 0xd2511f53
const MULTIPLIER_1 = 0xcd9e8d57
const WEYL_0 = 0x9e3779b9 // golden ratio
const WEYL_1 = 0xbb67ae85 // square root of 3, minus 1

type Words = readonly [number, number, number, number]

/**
 * A number in [0, 1) as a function of its three arguments: a sequence that resumes on another
 * worker draws the same numbers.
 */
export function uniformAt(seed: number, candidateIndex: number, position: number): number {
  const [high, low] = philox4x32([position >>> 0, candidateIndex >>> 0, 0, 0], keyOf(seed))
  return ((high >>> 5) * 2 ** 26 + (low >>> 6)) / 2 ** 53
}

/** The key of a seed: its 64 bits in two words. */
export function keyOf(seed: number): readonly [number, number] {
  const bits = BigInt.asUintN(64, BigInt(Math.trunc(seed)))
  return [Number(bits & 0xffffffffn), Number(bits >> 32n)]
}

/**
 * Philox 4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011): ten rounds
 * that multiply two words of the counter, swap the halves and mix in the key.
 */
export function philox4x32(counter: Words, key: readonly [number, number]): Words {
  let [c0, c1, c2, c3] = counter
  let [k0, k1] = key
  for (let round = 0; round < ROUNDS; round += 1) {
    const high0 = multiplyHigh(MULTIPLIER_0, c0)
    const high1 = multiplyHigh(MULTIPLIER_1, c2)
    const low0 = Math.imul(MULTIPLIER_0, c0)
    const low1 = Math.imul(MULTIPLIER_1, c2)
    ;[c0, c1, c2, c3] = [(high1 ^ c1 ^ k0) >>> 0, low1 >>> 0, (high0 ^ c3 ^ k1) >>> 0, low0 >>> 0]
    k0 = (k0 + WEYL_0) >>> 0
    k1 = (k1 + WEYL_1) >>> 0
  }
  return [c0, c1, c2, c3]
}

/** The upper 32 bits of a 64-bit product, computed in halves: a double holds only 53 bits. */
function multiplyHigh(a: number, b: number): number {
  const aHigh = a >>> 16
  const aLow = a & 0xffff
  const bHigh = b >>> 16
  const bLow = b & 0xffff
  const middle = aHigh * bLow + ((aLow * bLow) >>> 16)
  const carry = aLow * bHigh + (middle & 0xffff)
  return (aHigh * bHigh + Math.floor(middle / 65536) + Math.floor(carry / 65536)) >>> 0
}
