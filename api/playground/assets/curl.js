/** @typedef {import('./api.js').ApiRequest} ApiRequest */

/**
 * The command that sends the same request from a shell. The key is not in it: it stands in a variable.
 * @param {string} root @param {ApiRequest} request
 */
export function curlOf(root, { path, json, form }) {
  const isStream = json?.stream === true
  const parts = [
    `curl ${isStream ? '-N ' : ''}${quote(`${root}${path}`)}`,
    '-H "Authorization: Bearer $MILLRACE_API_KEY"',
  ]
  if (json !== undefined) {
    parts.push("-H 'Content-Type: application/json'", `-d ${quote(JSON.stringify(json))}`)
  }
  for (const [name, value] of form ?? []) {
    // What begins with @ or < is a file to curl, unless it is given as a plain string.
    if (value instanceof File)
      parts.push(`-F ${quote(`${name}=@"${value.name.replace(/["\\]/g, '\\$&')}"`)}`)
    else parts.push(`--form-string ${quote(`${name}=${value}`)}`)
  }
  return parts.join(' \\\n  ')
}

/** A word of a shell: nothing in it means anything to the shell. @param {string} text */
export function quote(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}
