// Checks every link of the built site to another page, a heading or a file; VitePress checks only those of
// Markdown, and no headings.
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join, relative } from 'node:path'

const SITE = join(import.meta.dirname, '../../dist/site')
const ORIGIN = 'http://site.invalid'
/** As in the configuration of the site. */
const BASE = process.env.SITE_BASE ?? ''

const pages = readdirSync(SITE, { recursive: true }).filter((path) => path.endsWith('.html'))
const texts = new Map(pages.map((page) => [page, readFileSync(join(SITE, page), 'utf8')]))
const dead = new Set()
let count = 0
for (const [page, text] of texts) {
  for (const [, link] of text.matchAll(/<a\b[^>]*?href="([^"]*)"/g)) {
    const url = new URL(link.replaceAll('&amp;', '&'), `${ORIGIN}${BASE}/${page}`)
    if (url.origin !== ORIGIN) continue
    count += 1
    const path = decodeURIComponent(url.pathname)
    const found = path.startsWith(`${BASE}/`) ? findFile(path.slice(BASE.length)) : undefined
    const id = decodeURIComponent(url.hash.slice(1))
    const hasHeading = id === '' || texts.get(found)?.includes(`id="${id}"`)
    if (found === undefined || !hasHeading) dead.add(`${page}: ${link}`)
  }
}
if (dead.size > 0) throw new Error(`dead links:\n${[...dead].join('\n')}`)
process.stdout.write(`${count} links checked\n`)

/** The file of an address, relative to the site. */
function findFile(path) {
  const candidates = [path, `${path}.html`, `${path}/index.html`].map((name) => join(SITE, name))
  const found = candidates.find((name) => existsSync(name) && statSync(name).isFile())
  return found === undefined ? undefined : relative(SITE, found)
}
