import { registerHooks } from 'node:module'

// Each of these is written in ECMAScript modules throughout, whose imports name whole files.
const PACKAGES = ['/node_modules/drizzle-orm/', '/node_modules/typebox/']

/**
 * Resolves the imports inside a few packages of many files without asking Node. Of every file Node
 * asks the package.json what form it has, and parses the list of exports again each time: that of
 * drizzle-orm has 170 KB, so that its hundred files took a third of the start of an API process.
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
