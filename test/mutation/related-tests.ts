import { existsSync, globSync, readFileSync } from 'node:fs'
import { basename, dirname, extname, join } from 'node:path'

// Imports, and the paths of programs and threads that are started.
const NAMED = /'([^'\n]+\.[jt]s)'/g
// A table of texts, such as an error code or a route; short ones are in most tests.
const LITERAL = /'([^'\n]{5,60})'/g

// Browsers load a script through the API, so more files are between than for an import.
const PAGE_DISTANCE = 100

/**
 * Tests that import a file, start a process that does, or open the page of a script. The first are
 * those whose paths and texts share most with it, then those with the fewest imports between. The
 * words of a path count, those of the file's name twice, and so do the literals, such as an error
 * code, that few tests name. Paths are relative to the root.
 */
export function relatedTests(root: string, file: string): string[] {
  const [words, nameWords] = [wordsOf(file), wordsOf(basename(file, extname(file)))]
  const tests = globSync('test/{unit,golden,integration}/**/*.test.ts', { cwd: root })
  const literals = literalsOf(root, file)
  const named = new Map(tests.map((test) => [test, common(literals, literalsOf(root, test))]))
  const rarity = (literal: string) =>
    1 / [...named.values()].filter((texts) => texts.includes(literal)).length
  return tests
    .map((test) => ({
      test,
      distance: distanceOf(root, test, file) ?? (showsPage(test, file) ? PAGE_DISTANCE : undefined),
      shared:
        common(wordsOf(test), words).length +
        common(wordsOf(basename(test)), nameWords).length +
        (named.get(test) ?? []).reduce((sum, literal) => sum + rarity(literal), 0),
    }))
    .filter(({ distance }) => distance !== undefined)
    .sort((a, b) => {
      const [near, far] = [a.distance ?? 0, b.distance ?? 0]
      return b.shared - a.shared || near - far || a.test.localeCompare(b.test)
    })
    .map(({ test }) => test)
}

/** Whether a test opens pages in a browser, and the file is one of their scripts. */
function showsPage(test: string, file: string): boolean {
  return file.endsWith('.js') && test.startsWith('test/integration/pages/')
}

function common(one: ReadonlySet<string>, other: ReadonlySet<string>): string[] {
  return [...one].filter((word) => other.has(word))
}

/** The words of a path, such as those of `api/limits/limit-store.ts`, in the singular. */
function wordsOf(path: string): Set<string> {
  return new Set(path.split(/[/.-]/).map((word) => word.replace(/s$/, '')))
}

/** How many imports lead from a test to a file; undefined where none does. */
function distanceOf(root: string, test: string, file: string): number | undefined {
  const seen = new Set([test])
  let level = [test]
  for (let distance = 0; level.length > 0; distance += 1) {
    if (level.includes(file)) return distance
    const next = new Set(level.flatMap((path) => importsOf(root, path)))
    level = [...next].filter((path) => !seen.has(path))
    for (const path of level) seen.add(path)
  }
  return undefined
}

function literalsOf(root: string, path: string): Set<string> {
  const found = [...textOf(root, path).matchAll(LITERAL)].map(([, literal = '']) => literal)
  return new Set(found.filter((literal) => !literal.endsWith('.ts')))
}

const imports = new Map<string, string[]>()

function importsOf(root: string, path: string): string[] {
  let found = imports.get(path)
  if (found === undefined) {
    found = [...textOf(root, path).matchAll(NAMED)].flatMap(([, name = '']) => {
      const places = name.startsWith('#') ? [name.slice(1)] : [join(dirname(path), name), name]
      return places.find((place) => existsSync(join(root, place))) ?? []
    })
    imports.set(path, found)
  }
  return found
}

const texts = new Map<string, string>()

function textOf(root: string, path: string): string {
  const text = texts.get(path) ?? readFileSync(join(root, path), 'utf8')
  texts.set(path, text)
  return text
}
