import { existsSync, globSync, readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'

const IMPORTED = /(?:from|import)\s*\(?\s*'([#.][^']+)'/g

/**
 * Tests that import a file: those whose paths share most words with its own first, then by the
 * number of imports between. The words of the file's name count twice. Paths are relative to the
 * root. Tests that start the product as processes of its own import it too, and do not see the
 * change.
 */
export function relatedTests(root: string, file: string, max: number): string[] {
  const [words, nameWords] = [wordsOf(file), wordsOf(basename(file, '.ts'))]
  return globSync('test/{unit,golden,integration}/**/*.test.ts', { cwd: root })
    .map((test) => ({
      test,
      distance: distanceOf(root, test, file),
      shared: sharedBy(wordsOf(test), words) + sharedBy(wordsOf(basename(test)), nameWords),
    }))
    .filter(({ distance }) => distance !== undefined)
    .sort((a, b) => {
      const [near, far] = [a.distance ?? 0, b.distance ?? 0]
      return b.shared - a.shared || near - far || a.test.localeCompare(b.test)
    })
    .slice(0, max)
    .map(({ test }) => test)
}

function sharedBy(one: ReadonlySet<string>, other: ReadonlySet<string>): number {
  return [...one].filter((word) => other.has(word)).length
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

const known = new Map<string, string[]>()

function importsOf(root: string, path: string): string[] {
  let found = known.get(path)
  if (found === undefined) {
    const text = readFileSync(join(root, path), 'utf8')
    found = [...text.matchAll(IMPORTED)]
      .map(([, name = '']) => (name.startsWith('#') ? name.slice(1) : join(dirname(path), name)))
      .filter((name) => name.endsWith('.ts') && existsSync(join(root, name)))
    known.set(path, found)
  }
  return found
}
