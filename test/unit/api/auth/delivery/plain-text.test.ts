import { expect, it } from 'vitest'

import { htmlToText } from '#api/auth/delivery/plain-text.ts'

it.each([
  ['<h2>Hello</h2><p>one<br>two</p>', 'Hello\n\none\ntwo'],
  [
    '<p><a href="https://a.test/v?x=1&#38;y=2">Confirm</a></p>',
    'Confirm: https://a.test/v?x=1&y=2',
  ],
  ["<a class='b' href='https://a.test'>Go</a>", 'Go: https://a.test'],
  ['<style>p { color: red }</style><!-- note --><p>text</p>', 'text'],
  ['&lt;b&gt; &amp; &#x41; &#65; &nbsp;&unknown;', '<b> & A A &unknown;'],
  ['  a   b \n\n\n\n c ', 'a b\n\nc'],
  ['&#0;&#9999999;', '&#0;&#9999999;'],
  [
    '<p>\u0130\u0130</p><STYLE>p {}</STYLE>seen<Head><title>x</title></HEAD >',
    '\u0130\u0130\n\nseen',
  ],
  ['<a name="top"></a>one <a href="https://a.test">two', 'one two'],
  ['a < b', 'a < b'],
  ['<style>never ended', 'never ended'],
])('%s reads %s', (html, text) => {
  expect(htmlToText(html)).toBe(text)
})

it.each(["<a href='", '<a href="x">', '<a href=', '<', '<!--', '<style>', '<a ', ' \n', '&#'])(
  'reads 256 KiB of %j to the end',
  (piece) => {
    const html = piece.repeat(Math.ceil(262_144 / piece.length))
    expect(htmlToText(`<p>first</p>${html}`)).toMatch(/^first/)
  },
)
