/** A WAV file of 16 bits and one channel; samples lie in -1 … 1. */
export function wavOf(samples: Float32Array, sampleRate = 16_000): Uint8Array<ArrayBuffer> {
  const bytes = Buffer.alloc(44 + 2 * samples.length)
  bytes.write('RIFF', 0)
  bytes.writeUInt32LE(bytes.length - 8, 4)
  bytes.write('WAVEfmt ', 8)
  bytes.writeUInt32LE(16, 16)
  bytes.writeUInt16LE(1, 20)
  bytes.writeUInt16LE(1, 22)
  bytes.writeUInt32LE(sampleRate, 24)
  bytes.writeUInt32LE(2 * sampleRate, 28)
  bytes.writeUInt16LE(2, 32)
  bytes.writeUInt16LE(16, 34)
  bytes.write('data', 36)
  bytes.writeUInt32LE(2 * samples.length, 40)
  for (const [at, value] of samples.entries()) bytes.writeInt16LE(value * 32_768, 44 + 2 * at)
  return Uint8Array.from(bytes)
}
