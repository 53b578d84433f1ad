import { patternOf } from '#api/v1/allowed-methods.ts'

import { ROUTES } from './routes.ts'

/** The methods that paths of the table refuse with 405. OPTIONS is answered before. */
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'TRACE', 'QUERY']

interface Path {
  readonly path: string
  readonly pattern: RegExp
  readonly methods: readonly string[]
}

let table: readonly Path[] | undefined

/** The methods of a path of the table; undefined if the path is unknown or has this method. */
export function methodsInsteadOf(method: string, path: string): readonly string[] | undefined {
  if (!METHODS.includes(method)) return undefined
  table ??= pathsOfTable()
  const found = table.find(({ pattern }) => pattern.test(path))
  return found?.methods.includes(method) === false ? found.methods : undefined
}

/**
 * URLs that a parameter of another path would match, with the methods of only that other path:
 * DELETE of `/user/identities/authorize` removes no identity, nor does `/user/identities/`, where
 * the parameter is empty.
 */
export function lookalikes(): readonly { readonly url: string; readonly methods: string[] }[] {
  const paths = pathsOfTable()
  return paths.flatMap(({ path, methods }) => {
    const added = (...urls: string[]): string[] =>
      paths
        .filter((other) => other.path !== path && urls.some((url) => other.pattern.test(url)))
        .flatMap((other) => other.methods.filter((method) => !methods.includes(method)))
    return [
      { url: path, methods: added(path) },
      { url: `${path}/`, methods: added(path, `${path}/x`) },
    ].filter((found) => found.methods.length > 0)
  })
}

/** Paths without parameters come first, as in the router. */
function pathsOfTable(): readonly Path[] {
  const byPath = Map.groupBy(ROUTES, (row) => row.path)
  return [...byPath]
    .map(([path, rows]) => ({
      path,
      pattern: patternOf(path),
      methods: rows.map((row): string => row.method),
    }))
    .toSorted((a, b) => Number(a.path.includes(':')) - Number(b.path.includes(':')))
}
