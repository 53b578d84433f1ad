import { registerHooks } from 'node:module'

// Packages of ECMAScript modules only, whose imports name complete files.
const PACKAGES = ['/node_modules/drizzle-orm/', '/node_modules/typebox/']

/**
 * Resolves imports inside a few large packages without Node's resolver. For every file Node looks
 * up the module format and parses the exports of package.json again: 170 KB for drizzle-orm, whose
 * hundred files took a third of the start of an API process.
 */
export function importDirectly(): void {
  registerHooks({
    resolve(specifier, context, nextResolve) {
      const { parentURL = '', conditions } = context
      const isWithin =
        specifier.startsWith('.') &&
        /\.m?js$/.test(specifier) &&
        // `require` accepts names without an extension, so it is left to Node.
        conditions.includes('import') &&
        PACKAGES.some((folder) => parentURL.includes(folder))
      if (!isWithin) return nextResolve(specifier, context)
      const { href } = new URL(specifier, parentURL)
      return { url: href, format: 'module', shortCircuit: true }
    },
  })
}
