/** The root URL of the service, with a trailing slash: a proxy may serve it below a path prefix. */
export const ROOT = new URL('../../', import.meta.url).href

/** The URL of a path of the service. @param {string} path */
export function addressOf(path) {
  return `${ROOT.slice(0, -1)}${path}`
}
