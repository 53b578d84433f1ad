import { randomBytes } from 'node:crypto'

/** Secrets that a test plants, to look for them in logs, metrics and traces. */
export class Canaries {
  readonly #planted = new Map<string, string>()

  get size(): number {
    return this.#planted.size
  }

  /** A unique word, to be put where a secret would be. */
  plant(name: string): string {
    return this.know(name, `canary${randomBytes(9).toString('hex')}`)
  }

  /** Something that is a secret already. Short codes would be found by chance. */
  know(name: string, secret: string): string {
    if (secret.length < 12) throw new Error(`${name} is too short to be looked for`)
    if (this.#planted.has(name)) throw new Error(`${name} is planted already`)
    this.#planted.set(name, secret)
    return secret
  }

  /** The names of those that a text holds, plainly or in the disguises that logs and pages use. */
  foundIn(text: string): string[] {
    return [...this.#planted].filter(([, secret]) => isIn(text, secret)).map(([name]) => name)
  }
}

function isIn(text: string, secret: string): boolean {
  const bytes = Buffer.from(secret)
  return [
    secret,
    encodeURIComponent(secret),
    JSON.stringify(secret).slice(1, -1),
    bytes.toString('hex'),
    // The middle of it in each of the three alignments of base64.
    ...[0, 1, 2].map((shift) => {
      const shifted = Buffer.concat([Buffer.alloc(shift), bytes]).toString('base64')
      return shifted.slice(4, 4 + 4 * Math.floor((bytes.length - 6) / 3))
    }),
  ].some((disguise) => text.includes(disguise))
}
