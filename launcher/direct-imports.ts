import { registerHooks } from 'node:module'

// Packages of ECMAScript modules whose imports name complete files.
const PACKAGES = ['/node_modules/drizzle-orm/', '/node_modules/typebox/']
const ROOT = new URL('../', import.meta.url).href
// As in package.json.
const OWN = /^#(?:api|workers|shared|launcher)\//

/**
 * Resolves imports inside the project and a few large packages without Node's resolver. For every
 * file Node looks up the module format and parses the exports of package.json again: 170 KB for
 * drizzle-orm, whose hundred files took a third of the start of an API process.
 */
export function importDirectly(): void {
  registerHooks({
    resolve(specifier, context, nextResolve) {
      const url = urlOf(specifier, context.parentURL ?? '')
      // `require` accepts names without an extension, so it is left to Node.
      if (url === undefined || !context.conditions.includes('import')) {
        return nextResolve(specifier, context)
      }
      const format = url.endsWith('.ts') ? 'module-typescript' : 'module'
      return { url, format, shortCircuit: true }
    },
  })
}

/** The file of an import, where its name alone determines it. */
function urlOf(specifier: string, parent: string): string | undefined {
  if (OWN.test(specifier)) return `${ROOT}${specifier.slice(1)}`
  if (!specifier.startsWith('.')) return undefined
  const isOwn = specifier.endsWith('.ts') && !parent.includes('/node_modules/')
  const isOfPackage =
    /\.m?js$/.test(specifier) && PACKAGES.some((folder) => parent.includes(folder))
  return isOwn || isOfPackage ? new URL(specifier, parent).href : undefined
}
