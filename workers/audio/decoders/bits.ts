/** A read beyond the last bit. In Vorbis this ends a packet; elsewhere it means damage. */
export class EndOfBitsError extends Error {}

/** Reads bits starting at the most significant one of each byte, as FLAC stores them. */
export class HighBitReader {
  readonly #bytes: Uint8Array
  #bit: number

  constructor(bytes: Uint8Array, byteOffset = 0) {
    this.#bytes = bytes
    this.#bit = byteOffset * 8
  }

  /** The byte in which the next bit lies. */
  get byteOffset(): number {
    return Math.ceil(this.#bit / 8)
  }

  /** An unsigned number of up to 53 bits. */
  read(count: number): number {
    if (this.#bit + count > this.#bytes.length * 8) throw new EndOfBitsError()
    let value = 0
    for (let left = count; left > 0; ) {
      const used = this.#bit & 7
      const taken = Math.min(8 - used, left)
      const byte = this.#bytes[this.#bit >>> 3] ?? 0
      value = value * 2 ** taken + ((byte >> (8 - used - taken)) & ((1 << taken) - 1))
      this.#bit += taken
      left -= taken
    }
    return value
  }

  /** A number in two's complement. */
  readSigned(count: number): number {
    const value = this.read(count)
    return value >= 2 ** (count - 1) ? value - 2 ** count : value
  }

  /** The number of zero bits before the next one bit, which is read, too. */
  readUnary(): number {
    for (let zeros = 0; ; ) {
      const used = this.#bit & 7
      const byte = this.#bytes[this.#bit >>> 3]
      if (byte === undefined) throw new EndOfBitsError()
      const rest = (byte << used) & 0xff
      if (rest === 0) {
        zeros += 8 - used
        this.#bit += 8 - used
        continue
      }
      const ahead = Math.clz32(rest) - 24
      this.#bit += ahead + 1
      return zeros + ahead
    }
  }

  skipToByte(): void {
    this.#bit = (this.#bit + 7) & ~7
  }
}

/** Reads bits starting at the least significant one of each byte, as Vorbis stores them. */
export class LowBitReader {
  readonly #bytes: Uint8Array
  #bit = 0

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes
  }

  /** An unsigned number of up to 32 bits. */
  read(count: number): number {
    if (this.#bit + count > this.#bytes.length * 8) throw new EndOfBitsError()
    let value = 0
    for (let done = 0; done < count; ) {
      const used = this.#bit & 7
      const taken = Math.min(8 - used, count - done)
      const byte = this.#bytes[this.#bit >>> 3] ?? 0
      value += ((byte >> used) & ((1 << taken) - 1)) * 2 ** done
      this.#bit += taken
      done += taken
    }
    return value
  }

  readFlag(): boolean {
    return this.read(1) === 1
  }
}
