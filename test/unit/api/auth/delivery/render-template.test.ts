import { describe, expect, it } from 'vitest'

import { renderTemplate, TemplateError } from '#api/auth/delivery/render-template.ts'

const VALUES = {
  Email: 'ann@example.com',
  NewEmail: '',
  Token: '123456',
  ConfirmationURL: 'https://a.test/verify?token=x&type=signup',
  Data: { name: '<b>"Ann"</b>', plan: { tier: 2 }, tags: ['x'], empty: {}, nothing: null },
}

describe('a template', () => {
  it.each([
    ['{{ .Email }} {{.Token}} {{  .Token  }}', 'ann@example.com 123456 123456'],
    ['a  {{- .Token -}}  b', 'a123456b'],
    ['a {{/* said to nobody */}} b', 'a  b'],
    ['{{ .Data.plan.tier }}', '2'],
    ['[{{ .Data.absent.deeper }}{{ .Data.nothing }}]', '[]'],
    ['{{ .Data.tags }}', '[&#34;x&#34;]'],
    ['{{ if .NewEmail }}new{{ else }}old{{ end }}', 'old'],
    ['{{ if .Email }}a{{ if .NewEmail }}b{{ end }}c{{ end }}', 'ac'],
    ['{{ if .NewEmail }}{{ if .Email }}x{{ else }}y{{ end }}{{ end }}z', 'z'],
    ['{{ if .Data.empty }}x{{ else }}y{{ end }}', 'y'],
    ['{{ if eq .Data.plan.tier 2 }}two{{ else }}other{{ end }}', 'two'],
    ['{{ if eq .Token "1" "123456" }}a{{ end }}{{ if eq .Token "a \\"b\\" c" }}b{{ end }}', 'a'],
    ['{{ if ne .Token "1" }}a{{ end }}{{ if not .NewEmail }}b{{ end }}', 'ab'],
    ['{{ if .NewEmail }}a{{ else if .Email }}b{{ else if .Token }}c{{ else }}d{{ end }}', 'b'],
    ['{{ if .NewEmail }}a{{ else if eq .Token "x" }}b{{ else }}c{{ end }}', 'c'],
    ['no actions } or { here', 'no actions } or { here'],
  ])('%s says %s', (template, expected) => {
    expect(renderTemplate(template, VALUES)).toBe(expected)
  })

  it('escapes the values from users, in text and in attributes', () => {
    const html = renderTemplate('<a title="{{ .Data.name }}">{{ .Data.name }}</a>', VALUES)
    const name = '&#60;b&#62;&#34;Ann&#34;&#60;/b&#62;'
    expect(html).toBe(`<a title="${name}">${name}</a>`)
  })

  it('does not execute the content of a value', () => {
    expect(renderTemplate('{{ .Email }}', { ...VALUES, Email: '{{ .Token }}' })).toBe(
      '{{ .Token }}',
    )
  })

  it.each([
    ['{{ .Unknown }}', 'unknown variable'],
    ['{{ .constructor }}', 'unknown variable'],
    ['{{ range .Data }}{{ end }}', 'unknown action'],
    ['{{ printf "%s" .Email }}', 'unknown action'],
    ['{{ if .Email }}open', 'no end'],
    ['{{ else }}', 'has no if'],
    ['{{ end }}', 'has no if'],
    ['{{ if .Email }}{{ else }}{{ else }}{{ end }}', 'has no if'],
    ['{{ .Email', 'not closed'],
    ['{{ if and .Email .Token }}x{{ end }}', 'unknown condition'],
    ['{{ if eq .Email }}x{{ end }}', 'unknown condition'],
    ['{{ if eq .Email "x }}x{{ end }}', 'unknown constant'],
    ['{{ if }}x{{ end }}', 'unknown condition'],
    ['{{ if .Email }}'.repeat(21), 'too deeply'],
  ])('%s is refused', (template, message) => {
    expect(() => renderTemplate(template, VALUES)).toThrow(TemplateError)
    expect(() => renderTemplate(template, VALUES)).toThrow(message)
  })

  it('never reads inherited properties', () => {
    expect(renderTemplate('[{{ .Data.constructor }}{{ .Data.tags.length }}]', VALUES)).toBe('[1]')
  })
})
