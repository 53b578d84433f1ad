/** The servers of a Postgres connection string. */
interface DatabaseTarget {
  /** A connection string of one server each, in the order of preference. */
  readonly urls: readonly string[]
  /** Connections go only to a server that accepts writes. */
  readonly mustWrite: boolean
}

const PARTS =
  /^(?<head>postgres(?:ql)?:\/\/(?:[^@/?]*@)?)(?<hosts>[^/?]*)(?<path>\/[^?]*)?(?:\?(?<query>.*))?$/
const HOST = /^(?:\[[\da-f:.]+\]|[\w.-]+)(?::\d{1,5})?$/i
const ATTRIBUTES = ['any', 'read-write', 'primary']

/**
 * Parses a connection string as libpq does: `postgres://user@a:5432,b:5432/db` names several
 * servers, and `target_session_attrs` selects among them. With several servers the default is
 * `read-write`, because everything but lists writes. Error messages contain no password.
 */
export function parseDatabaseUrl(url: string): DatabaseTarget {
  const groups = PARTS.exec(url)?.groups
  // The driver also accepts socket paths and other forms.
  if (groups === undefined) return { urls: [url], mustWrite: false }
  const { head = '', hosts = '', path = '', query = '' } = groups
  const given = new URLSearchParams(query)
  const attributes = given.get('target_session_attrs')
  if (attributes !== null && !ATTRIBUTES.includes(attributes)) {
    throw new Error(`has target_session_attrs=${attributes}: use ${ATTRIBUTES.join(', ')}`)
  }
  const names = hosts.split(',')
  for (const name of names.length > 1 ? names : []) {
    if (!HOST.test(name)) throw new Error(`has "${name}" where host or host:port is expected`)
  }
  given.delete('target_session_attrs')
  const tail = `${path}${given.size > 0 ? `?${given}` : ''}`
  return {
    urls:
      attributes === null && names.length === 1 ? [url] : names.map((name) => head + name + tail),
    mustWrite: attributes === null ? names.length > 1 : attributes !== 'any',
  }
}
