// What package-lock.json installs in production. Plain JavaScript without dependencies and without a network.
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/** The packages of a lockfile that are not only for development, sorted by their folder. */
export function productionPackages(root) {
  const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'))
  return Object.entries(lock.packages)
    .filter(([folder, entry]) => folder !== '' && entry.dev !== true)
    .map(([folder, entry]) => ({
      folder,
      // Aliases state the real name.
      name:
        entry.name ?? folder.slice(folder.lastIndexOf('node_modules/') + 'node_modules/'.length),
      version: entry.version,
      integrity: entry.integrity,
      optional: entry.optional === true,
      license: entry.license,
      installedLicense: installedLicense(join(root, folder, 'package.json')),
      requires: Object.keys({
        ...entry.dependencies,
        ...entry.optionalDependencies,
        ...entry.peerDependencies,
      }),
    }))
}

/** The folder that Node resolves a dependency of a package to; undefined where it is not installed. */
export function resolveFolder(folders, from, name) {
  const parents = from.split(/(?:^|\/)node_modules\//).slice(1)
  for (let depth = parents.length; depth >= 0; depth -= 1) {
    const path = [...parents.slice(0, depth), name].map((part) => `node_modules/${part}`)
    if (folders.has(path.join('/'))) return path.join('/')
  }
  return undefined
}

// Optional packages of other platforms are not installed here.
function installedLicense(path) {
  if (!existsSync(path)) return undefined
  const { license, licenses } = JSON.parse(readFileSync(path, 'utf8'))
  if (typeof license === 'string') return license
  const list = [license ?? licenses ?? []].flat().map((each) => each.type ?? each)
  return list.length === 0 ? undefined : list.join(' OR ')
}
