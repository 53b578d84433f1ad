/** The plain-text part of a mail: its HTML without tags, with the addresses of links spelled out. */
export function htmlToText(html: string): string {
  return html
    .replace(/<(style|script|head|title)\b[^>]*>.*?<\/\1\s*>/gis, '')
    .replace(/<!--.*?-->/gs, '')
    .replace(/<a\b[^>]*?href\s*=\s*(["'])(.*?)\1[^>]*>(.*?)<\/a\s*>/gis, '$3: $2')
    .replace(/<br\s*\/?>/gi, '\n')
    .replace(/<\/(p|div|h[1-6]|li|tr|table|ul|ol|blockquote)\s*>/gi, '\n\n')
    .replace(/<[^>]*>/g, '')
    .replace(/&(#\d{1,7}|#x[\da-f]{1,6}|[a-z]{2,6});/gi, decodeEntity)
    .replace(/[ \t]+/g, ' ')
    .replace(/ ?\n ?/g, '\n')
    .replace(/\n{3,}/g, '\n\n')
    .trim()
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
