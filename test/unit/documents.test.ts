import { existsSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'

import { describe, expect, it } from 'vitest'

import { isCommand, parseCommandLine } from '#launcher/command-line.ts'
import { renderEnvExample } from '#shared/config/config.ts'
import { current, FOLDERS, type Page, pages } from '#test/support/documents.ts'

const ROOT = join(import.meta.dirname, '../..')

/** All matches of the documents that do not hold, each with its place. */
function broken(
  from: readonly Page[],
  pattern: RegExp,
  holds: (match: string, page: Page) => boolean,
): string[] {
  return from.flatMap((page) =>
    [...page.text.matchAll(pattern)]
      .map((match) => match[1] ?? '')
      .filter((match) => !holds(match, page))
      .map((match) => `${page.path}: ${match}`),
  )
}

/** The anchors of the headings of a page, as GitHub writes them. */
function anchorsOf(text: string): ReadonlySet<string> {
  const headings = text.replaceAll(/^```[\s\S]*?^```/gm, '').matchAll(/^#+ (.+)$/gm)
  return new Set(
    [...headings].map(([, title = '']) =>
      title
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N}_ -]/gu, '')
        .replaceAll(' ', '-'),
    ),
  )
}

describe('the documents', () => {
  it('link to files and headings that exist', () => {
    const resolves = (link: string, { path, text }: Page): boolean => {
      const [file = '', anchor] = link.split('#')
      const target = file === '' ? path : relative(ROOT, join(ROOT, dirname(path), file))
      if (!existsSync(join(ROOT, target))) return false
      if (anchor === undefined || !target.endsWith('.md')) return true
      const content = file === '' ? text : readFileSync(join(ROOT, target), 'utf8')
      return anchorsOf(content).has(anchor)
    }
    expect(broken(pages, /\]\((?![a-z]+:)([^)\s]+)\)/g, resolves)).toEqual([])
  })

  it('are on the site, each page of docs/ under its title', () => {
    const config = readFileSync(join(ROOT, 'docs/.vitepress/config.mjs'), 'utf8')
    const listed = [...config.matchAll(/page\('[^']+', '\/(.+?)\/?'\)/g)].map(
      ([, link = '']) => link,
    )
    const inDocs = pages.map(({ path }) => path.replace(/(\/README)?\.md$/, ''))
    const wanted = inDocs.filter((path) => /^docs\/(guides\/)?[\w-]+$/.test(path))
    expect(wanted.filter((path) => !listed.includes(path))).toEqual([])
    expect(
      listed.filter((link) => !/^docs\/reference\//.test(link) && !inDocs.includes(link)),
    ).toEqual([])
  })

  it('name paths that exist, or that git ignores because programs make them', () => {
    const made = readFileSync(join(ROOT, '.gitignore'), 'utf8').split('\n')
    const folders = FOLDERS.map((folder) => folder.replace('.', '\\.')).join('|')
    const paths = new RegExp(`\`((?:${folders})/[\\w./-]*\\w[\\w./-]*)\``, 'g')
    const exists = (path: string, page: Page): boolean =>
      made.includes(path) ||
      [ROOT, join(ROOT, dirname(page.path))].some((base) => existsSync(join(base, path)))
    expect(broken(current, paths, exists)).toEqual([])
  })

  it('name npm scripts that exist', () => {
    const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
      scripts: Record<string, string>
    }
    const exists = (name: string): boolean => Object.hasOwn(scripts, name)
    expect(broken(current, /\bnpm run (?:-s )?([\w:-]+)/g, exists)).toEqual([])
  })

  it('call commands that the command line accepts', () => {
    const isAccepted = (call: string): boolean => {
      const [name = '', ...rest] = call
        .replaceAll(/<[^>]*>|…/g, 'x')
        .split(' ')
        .filter((word) => word !== '')
      // Operands in words of their own, such as `millrace models`, name a group of commands.
      if (!isCommand(name)) return name === 'help'
      try {
        parseCommandLine(name, rest)
        return true
      } catch {
        return rest.length === 0
      }
    }
    const calls = /(?:`|^|npx )(?:npm run (?:-s )?millrace -- |millrace )([a-z][^`\n|>#;&\\]*)/gm
    expect(broken(current, calls, isAccepted)).toEqual([])
  })

  it('list each unreleased change in one line', () => {
    const log = readFileSync(join(ROOT, 'CHANGELOG.md'), 'utf8')
    const unreleased = log.split(/^## /m).find((part) => part.startsWith('Unreleased')) ?? ''
    expect(unreleased).toContain('\n- ')
    expect(unreleased.match(/^ +\S.*/gm) ?? []).toEqual([])
  })

  it('name settings that .env.example lists', () => {
    const known = new Set(renderEnvExample().match(/[A-Z][A-Z\d_]{2,}/g))
    const isKnown = (name: string): boolean => known.has(name)
    expect(broken(current, /`((?:AUTH|MILLRACE|S3|REDIS)_[A-Z\d_]+)`/g, isKnown)).toEqual([])
  })
})
