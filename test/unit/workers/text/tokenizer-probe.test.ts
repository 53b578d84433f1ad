import { expect, it } from 'vitest'

import { probeTokenizer } from '#workers/text/tokenizer-probe.ts'

const sleep = (ms: number): unknown =>
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)

it('accepts a tokenizer that the machine delays beyond the limit of its processor time', () => {
  const slow = { normalizer: null, pre_tokenizer: null, model: {}, encode: () => sleep(1200) }
  expect(() => probeTokenizer({}, slow)).not.toThrow()
})
