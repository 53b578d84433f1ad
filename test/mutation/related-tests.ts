import { existsSync, globSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

const IMPORTED = /(?:from|import)\s*\(?\s*'([#.][^']+)'/g

/**
 * Tests that import a file, the nearest first: those of the folders that mirror its own, then by
 * the number of imports between. Paths are relative to the root. Tests that start the product as
 * processes of its own import it too, and do not see the change.
 */
export function relatedTests(root: string, file: string, max: number): string[] {
  const tests = globSync('test/{unit,golden,integration}/**/*.test.ts', { cwd: root })
  const mirrors = [`test/unit/${dirname(file)}/`, `test/integration/${nounOf(file)}/`]
  return tests
    .map((test) => ({ test, distance: distanceOf(root, test, file) }))
    .filter(({ distance }) => distance !== undefined)
    .sort((a, b) => rank(a) - rank(b) || a.test.localeCompare(b.test))
    .slice(0, max)
    .map(({ test }) => test)

  function rank({ test, distance = 0 }: { test: string; distance: number | undefined }): number {
    return mirrors.some((mirror) => test.startsWith(mirror)) ? distance - 100 : distance
  }
}

/** The folder of a tier that a file lies in, such as `limits` of `api/limits/limiter.ts`. */
function nounOf(file: string): string {
  return file.split('/')[1] ?? ''
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
