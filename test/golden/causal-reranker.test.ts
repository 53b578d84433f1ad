import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { CHECKPOINTS } from '#test/unit/workers/convert/checkpoint-folders.ts'
import { MODELS } from '#test/unit/workers/engine/generate.ts'
import { convertCheckpoint } from '#workers/convert/convert-checkpoint.ts'
import { WEIGHT_FORMS } from '#workers/convert/weight-forms.ts'
import { openCausalReranker } from '#workers/embedding/causal-reranker.ts'
import { sigmoid } from '#workers/embedding/labels.ts'
import type { Reranker } from '#workers/embedding/reranker.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

/** Scores of sentence-transformers on the same weights, made by test/fixtures/build-models.py. */
interface Golden {
  readonly pairs: readonly (readonly [string, string])[]
  readonly scores: readonly number[]
}

const FILES = join(MODELS, 'causal-reranker')
const golden = JSON.parse(readFileSync(join(FILES, 'golden.json'), 'utf8')) as Golden
const { signal } = new AbortController()
const root = mkdtempSync(join(tmpdir(), 'millrace-reranker-'))
const folder = join(root, 'model')
const runtime = openRuntime()
beforeAll(async () => {
  const checkpoint = join(CHECKPOINTS, 'llama')
  await convertCheckpoint({ folder: checkpoint, target: folder, form: WEIGHT_FORMS.fp32 })
  cpSync(FILES, folder, { recursive: true })
})
afterAll(async () => {
  await runtime.close()
  rmSync(root, { recursive: true })
})

describe('a language model with the layer LogitScore', () => {
  it('gives the scores of sentence-transformers, alone and together', async () => {
    await withReranker({}, async (reranker) => {
      const pairs = golden.pairs.map(([query, document]) => reranker.encodePair(query, document))
      const score = async (pair: (typeof pairs)[number]): Promise<number> =>
        sigmoid(await reranker.logit(pair, signal))
      const together = await Promise.all(pairs.map(score))
      for (const [index, pair] of pairs.entries()) {
        expect(together[index]).toBeCloseTo(golden.scores[index] as number, 4)
        expect(await score(pair)).toBeCloseTo(together[index] as number, 5)
      }
    })
  })

  it('reads markers in a document as text', async () => {
    await withReranker({}, async (reranker) => {
      const count = (document: string): number =>
        reranker.encodePair('boats', document).tokenIds.length
      expect(count('a<|im_end|>b')).toBeGreaterThan(count('ab') + 1)
    })
  })

  it('cuts a long document and refuses a long query', async () => {
    await withReranker({ maxContextTokens: 128 }, async (reranker) => {
      const long = 'The river is cold. '.repeat(200)
      const { tokenIds } = reranker.encodePair('boats', long)
      expect(tokenIds.length).toBeLessThanOrEqual(reranker.contextLength)
      const whole = reranker.encodePair('boats', 'x').tokenIds
      expect(tokenIds.slice(-4)).toEqual(whole.slice(-4))
      expect(() => reranker.encodePair(long, 'boats')).toThrow(/The query has .* tokens/)
      const tail = { isCut: true, side: 'left' } as const
      const ofTail = reranker.encodePair('boats', `${long}${'Stop! '.repeat(200)}`, tail)
      expect(ofTail).toEqual(reranker.encodePair('boats', 'Stop! '.repeat(400), tail))
      const refused = { isCut: false }
      expect(() => reranker.encodePair('boats', long, refused)).toThrow(/A document has more/)
    })
  })

  it.each([
    [
      'chat_template.jinja',
      "{{ messages[0]['content'] }}",
      'does not render messages of the roles query',
    ],
    ['1_LogitScore/config.json', '{"true_token_id": 320}', 'below 320'],
    ['1_LogitScore/config.json', '{"true_token_id": "yes"}', 'must name true_token_id'],
  ])('is refused with %s of %s', async (file, text, reason) => {
    const other = join(root, 'other')
    cpSync(folder, other, { recursive: true })
    writeFileSync(join(other, file), text)
    await expect(openCausalReranker({ runtime, folder: other })).rejects.toMatchObject({
      name: 'ModelLoadError',
      message: expect.stringContaining(reason),
    })
  })
})

async function withReranker(
  options: { readonly maxContextTokens?: number },
  use: (reranker: Reranker) => Promise<void>,
): Promise<void> {
  const reranker = defined(await openCausalReranker({ runtime, folder, ...options }))
  try {
    await use(reranker)
  } finally {
    await reranker.close()
  }
}
