import { expect, it } from 'vitest'

import { LineTooLongError, readLines } from '#api/http/lines.ts'

async function linesOf(text: string, bytesEach: number, bytesMax = 100): Promise<string[]> {
  const bytes = Buffer.from(text)
  async function* pieces() {
    for (let at = 0; at < bytes.length; at += bytesEach) yield bytes.subarray(at, at + bytesEach)
  }
  const lines: string[] = []
  for await (const line of readLines(pieces(), bytesMax)) lines.push(line)
  return lines
}

it.each([
  ['a\nb\n', ['a', 'b']],
  ['a\n\nb', ['a', '', 'b']],
  ['\ufeffa\n\ufeffb', ['a', '\ufeffb']],
  ['ä\u2028b\r\nc', ['ä\u2028b\r', 'c']],
  ['', []],
])('reads %j as its lines, however it is cut', async (text, expected) => {
  for (const bytesEach of [1, 2, 3, 100]) expect(await linesOf(text, bytesEach)).toEqual(expected)
})

it('reads no line beyond its limit', async () => {
  await expect(linesOf('x'.repeat(101), 7)).rejects.toBeInstanceOf(LineTooLongError)
  expect(await linesOf('x'.repeat(100), 7)).toHaveLength(1)
})
