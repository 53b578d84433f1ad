/** @typedef {import('./api.js').ApiRequest} ApiRequest */

/**
 * The shell command that sends the same request. The key is a variable instead of its value.
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
    // curl reads values that start with @ or < from files, unless --form-string is used.
    if (value instanceof File)
      parts.push(`-F ${quote(`${name}=@"${value.name.replace(/["\\]/g, '\\$&')}"`)}`)
    else parts.push(`--form-string ${quote(`${name}=${value}`)}`)
  }
  return parts.join(' \\\n  ')
}

/** Quotes a word for the shell. @param {string} text */
export function quote(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}
