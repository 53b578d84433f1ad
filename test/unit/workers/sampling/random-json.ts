import { fixtureTokenizer } from '#test/unit/workers/text/model-folders.ts'
import type { Grammar } from '#workers/sampling/constraint/grammar.ts'
import { ConstraintFactory } from '#workers/sampling/constraint/token-constraint.ts'
import { buildTokenTrie } from '#workers/sampling/constraint/token-trie.ts'
import { uniformAt } from '#workers/sampling/counter-random.ts'

const END = 2
const STEPS_MAX = 600
const { pieces, findTokenId } = fixtureTokenizer('llama')
const trie = buildTokenTrie(pieces)
const CLOSERS = ['"', '}', ']', ','].map((token) => findTokenId(token) as number)

/** A follower of a grammar over the fixture's vocabulary. */
export function constrain(grammar: Grammar): ConstraintFactory {
  return new ConstraintFactory({ grammar, trie, pieces, endTokenIds: new Set([END]) })
}

/**
 * The text of a random model under a constraint: each token is random among the allowed ones, and
 * ending tokens grow more likely. Undefined when it reached no end.
 */
export function writeAtRandom(factory: ConstraintFactory, seed: number): string | undefined {
  const constraint = factory.create()
  const bytes: number[] = []
  for (let step = 0; step < STEPS_MAX; step += 1) {
    const scores = Float32Array.from({ length: pieces.size }, (_, id) => uniformAt(seed, step, id))
    for (const closer of [END, ...CLOSERS]) scores[closer] = (scores[closer] as number) + step / 100
    constraint.mask(scores)
    const best = scores.indexOf(Math.max(...scores))
    if (scores[best] === Number.NEGATIVE_INFINITY) throw new Error('no token is allowed')
    if (best === END) return Buffer.from(bytes).toString('utf8')
    constraint.accept(best)
    bytes.push(...pieces.bytesOf(best))
    if (constraint.isFinished) return Buffer.from(bytes).toString('utf8')
  }
  return undefined
}

/** Whether a grammar accepts a text, byte by byte. */
export function accepts(grammar: Grammar, text: string): boolean {
  const constraint = constrain(grammar).create()
  for (const byte of Buffer.from(text)) {
    const tokenId = BYTE_TOKENS.get(byte) as number
    const scores = new Float32Array(pieces.size)
    constraint.mask(scores)
    if (scores[tokenId] === Number.NEGATIVE_INFINITY) return false
    constraint.accept(tokenId)
  }
  const scores = new Float32Array(pieces.size)
  constraint.mask(scores)
  return scores[END] !== Number.NEGATIVE_INFINITY
}

const BYTE_TOKENS = new Map(
  Array.from({ length: pieces.size }, (_, id) => id)
    .filter((id) => pieces.bytesOf(id).length === 1)
    .map((id) => [pieces.bytesOf(id)[0] as number, id]),
)
