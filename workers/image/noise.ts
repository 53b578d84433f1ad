import { keyOf, philox4x32 } from '#workers/sampling/counter-random.ts'

/**
 * Standard normals as a function of seed, image, draw and position: an image does not depend on its
 * neighbours or its worker. Box and Muller 1958 over Philox.
 */
export function normalNoise(
  { seed, image, draw }: { seed: number; image: number; draw: number },
  length: number,
): Float32Array {
  const key = keyOf(seed)
  const noise = new Float32Array(length)
  for (let at = 0; at < length; at += 4) {
    const words = philox4x32([at / 4, image >>> 0, draw >>> 0, 0], key)
    noise.set(pairOf(words[0], words[1]).slice(0, length - at), at)
    noise.set(
      pairOf(words[2], words[3]).slice(0, Math.max(0, length - at - 2)),
      Math.min(at + 2, length),
    )
  }
  return noise
}

function pairOf(a: number, b: number): [number, number] {
  // Half a step above zero, because the logarithm of zero is infinite.
  const radius = Math.sqrt(-2 * Math.log((a + 0.5) / 2 ** 32))
  const angle = (2 * Math.PI * b) / 2 ** 32
  return [radius * Math.cos(angle), radius * Math.sin(angle)]
}
