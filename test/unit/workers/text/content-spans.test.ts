import { expect, it } from 'vitest'

import { surround } from '#workers/text/content-spans.ts'

it('writes margins around the words of the template, but not around those of a client', () => {
  const text = 'user\n<image>What is <image>?<image>\n'
  const start = text.indexOf('What')
  const end = text.indexOf('?') + 1
  const content = [{ start, end, origin: 'content' } as const]
  const written = surround({ text, content }, '<image>', '--')
  expect(written.text).toBe('user\n--<image>--What is <image>?--<image>--\n')
  const [span] = written.content
  expect(written.text.slice(span?.start, span?.end)).toBe('What is <image>?')
})
