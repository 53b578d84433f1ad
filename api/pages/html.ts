import { pathOf } from '#api/http/request.ts'

/** Markup that is safe to send; all other values are escaped when they are inserted. */
export class Html {
  readonly #text: string

  constructor(text: string) {
    this.#text = text
  }

  toString(): string {
    return this.#text
  }
}

type Value = string | number | undefined | Html | readonly Html[]

/** Markup from a template; inserted values are escaped unless they are markup. */
export function html(strings: TemplateStringsArray, ...values: readonly Value[]): Html {
  return new Html(strings.reduce((text, part, index) => text + render(values[index - 1]) + part))
}

function render(value: Value): string {
  if (value === undefined) return ''
  if (Array.isArray(value)) return value.join('')
  return value instanceof Html ? value.toString() : escapeHtml(String(value))
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

/** Escapes a text for markup and quoted attributes. */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => ENTITIES[character] as string)
}

/** Whether a client prefers HTML: browsers ask for it, programs do not. */
export function prefersHtml(accept: string | undefined): boolean {
  const weights = new Map(
    (accept ?? '').split(',').map((range) => {
      const [type = '', ...parameters] = range.split(';').map((part) => part.trim().toLowerCase())
      const quality = parameters.find((parameter) => parameter.startsWith('q='))
      return [type, quality === undefined ? 1 : Number(quality.slice(2)) || 0] as const
    }),
  )
  const html = weights.get('text/html') ?? 0
  return html > 0 && html >= (weights.get('application/json') ?? 0)
}

/**
 * The relative path from a page to the root of this service: the prefix of all links, so that they
 * also work below a path prefix of a proxy.
 */
export function wayToRoot(url: string): string {
  const depth = pathOf(url).split('/').length - 2
  return depth > 0 ? '../'.repeat(depth) : './'
}
