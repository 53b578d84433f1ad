// Elements whose content is not shown to readers.
const HIDDEN = new Set(['style', 'script', 'head', 'title'])
const BLOCKS = new Set(
  'p div h1 h2 h3 h4 h5 h6 li tr table ul ol blockquote'.split(' ').map((name) => `/${name}`),
)

/**
 * The plain-text part of a mail: its HTML without tags, with the URLs of links written out. Reads
 * every character once, even if tags are malformed.
 */
export function htmlToText(html: string): string {
  return withoutTags(html)
    .replace(/&(#\d{1,7}|#x[\da-f]{1,6}|[a-z]{2,6});/gi, decodeEntity)
    .replace(/[ \t]+/g, ' ')
    .replace(/ ?\n ?/g, '\n')
    .replace(/\n{3,}/g, '\n\n')
    .trim()
}

function withoutTags(html: string): string {
  const out: string[] = []
  const findEnd = createEndFinder(html)
  let href = ''
  let position = 0
  for (;;) {
    const start = html.indexOf('<', position)
    const end = start < 0 ? -1 : html.indexOf('>', start)
    if (end < 0) break
    out.push(html.slice(position, start))
    const tag = html.slice(start + 1, end)
    const name = /^(?:!--|\/?[a-z][a-z0-9]*)/i.exec(tag)?.[0].toLowerCase() ?? ''
    position = findEnd(name, start, end)
    if (name === 'br') out.push('\n')
    else if (BLOCKS.has(name)) out.push('\n\n')
    else if (name === 'a') href = hrefOf(tag)
    else if (name === '/a') {
      if (href !== '') out.push(`: ${href}`)
      href = ''
    }
  }
  return out.join('') + html.slice(position)
}

/** The position after a tag, or after the content that it hides. */
function createEndFinder(html: string) {
  // Only ASCII: other letters may change their length in lower case, which would shift positions.
  const lower = html.replace(/[A-Z]+/g, (letters) => letters.toLowerCase())
  // Each tag is searched once: if it has no end here, it has none later either.
  const unended = new Set<string>()
  const after = (closing: string, from: number): number => {
    const found = unended.has(closing) ? -1 : lower.indexOf(closing, from)
    if (found < 0) unended.add(closing)
    return found
  }
  return (name: string, start: number, end: number): number => {
    if (name === '!--') {
      const found = after('-->', start + 4)
      return found < 0 ? end + 1 : found + 3
    }
    const found = HIDDEN.has(name) ? after(`</${name}`, end) : -1
    const close = found < 0 ? -1 : html.indexOf('>', found)
    return close < 0 ? end + 1 : close + 1
  }
}

function hrefOf(tag: string): string {
  const [, double, single] = /\bhref\s*=\s*(?:"([^"]*)"|'([^']*)')/i.exec(tag) ?? []
  return double ?? single ?? ''
}

const NAMED: Readonly<Record<string, string>> = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  apos: "'",
  nbsp: ' ',
}

function decodeEntity(whole: string, name: string): string {
  if (!name.startsWith('#')) return NAMED[name.toLowerCase()] ?? whole
  const isHex = /^#x/i.test(name)
  const point = isHex ? Number.parseInt(name.slice(2), 16) : Number(name.slice(1))
  return point > 0 && point <= 0x10ffff ? String.fromCodePoint(point) : whole
}
