import { spawnSync } from 'node:child_process'
import { join } from 'node:path'

import { describe, expect, it } from 'vitest'

import { escapeHtml, html, prefersHtml } from '#api/pages/html.ts'

const ROOT = join(import.meta.dirname, '../../../..')

describe('the format that a client prefers', () => {
  it.for([
    ['text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8', true],
    ['TEXT/HTML', true],
    ['application/json, text/html;q=0.9', false],
    ['text/html;q=0', false],
    ['text/html;q=oops', false],
    ['application/json', false],
    ['*/*', false],
    ['', false],
    [undefined, false],
  ] as const)('of "%s" is a page: %s', ([accept, expected]) => {
    expect(prefersHtml(accept)).toBe(expected)
  })
})

describe('markup', () => {
  it('escapes every inserted text, in every position', () => {
    const hostile = `<img src=x onerror="alert('x')">&`
    expect(html`<p title="${hostile}">${hostile}</p>`.toString()).toBe(
      `<p title="${escapeHtml(hostile)}">${escapeHtml(hostile)}</p>`,
    )
    expect(escapeHtml(hostile)).toBe(
      '&lt;img src=x onerror=&quot;alert(&#39;x&#39;)&quot;&gt;&amp;',
    )
  })

  it('keeps markup in markup, in lists too, and omits undefined', () => {
    const items = ['a', '<b>'].map((text) => html`<li>${text}</li>`)
    expect(html`<ul>${items}</ul>${undefined}${3}`.toString()).toBe(
      '<ul><li>a</li><li>&lt;b&gt;</li></ul>3',
    )
  })
})

describe('the scripts of the pages', () => {
  it('fit their types', { timeout: 240_000 }, () => {
    const { stdout, status } = spawnSync(
      join(ROOT, 'node_modules/.bin/tsc'),
      ['--noEmit', '-p', 'api/pages/tsconfig.browser.json'],
      { cwd: ROOT, encoding: 'utf8' },
    )
    expect(stdout).toBe('')
    expect(status).toBe(0)
  })
})
