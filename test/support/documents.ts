import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '../..')
/** The folders that the repository has at its top. */
export const FOLDERS = [
  ...['api', 'bench', 'deploy', 'docs', 'launcher', 'migrations', 'models', 'shared', 'test'],
  ...['workers', '.github', '.ci'],
]
/** Documents about the past may name files that were removed. */
const HISTORY = /^(CHANGELOG\.md|docs\/decisions\/)/

/** A Markdown file; its path is relative to the root of the repository. */
export interface Page {
  readonly path: string
  readonly text: string
}

/** All Markdown files of the repository. */
export const pages: readonly Page[] = [
  ...readdirSync(ROOT).filter((name) => name.endsWith('.md')),
  ...FOLDERS.flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.md') && !/node_modules|\.vitepress/.test(name))
      .map((name) => join(folder, name)),
  ),
].map((path) => ({ path, text: readFileSync(join(ROOT, path), 'utf8') }))

/** Those that describe the present state. */
export const current = pages.filter(({ path }) => !HISTORY.test(path))

/** A block of code of a page. */
export interface Sample {
  /** The path of the page, and the number of the first line. */
  readonly place: string
  /** As written after the fence; empty where none is. */
  readonly language: string
  readonly text: string
}

/** The blocks of code of all current pages. */
export function samples(): readonly Sample[] {
  return current.flatMap(({ path, text }) =>
    [...text.matchAll(/^```(\w*)\n([\s\S]*?)^```/gm)].map((match) => ({
      place: `${path}:${text.slice(0, match.index).split('\n').length + 1}`,
      language: match[1] ?? '',
      text: match[2] ?? '',
    })),
  )
}
