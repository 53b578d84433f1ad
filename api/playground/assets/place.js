/** The root of the service, with the slash at its end: a proxy may serve it below a path of its own. */
export const ROOT = new URL('../../', import.meta.url).href

/** The address of a path of the service. @param {string} path */
export function addressOf(path) {
  return `${ROOT.slice(0, -1)}${path}`
}
