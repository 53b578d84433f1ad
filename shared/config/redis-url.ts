/** A host and port. */
interface RedisNode {
  readonly host: string
  readonly port: number
}

interface Credentials {
  readonly username?: string
  readonly password?: string
}

/** The servers that a `REDIS_URL` names. */
export type RedisTarget =
  | { readonly kind: 'server'; readonly url: string }
  | {
      readonly kind: 'sentinel'
      readonly sentinels: readonly RedisNode[]
      readonly masterName: string
      readonly db: number
      readonly isTls: boolean
      /** Credentials for the master and its replicas. */
      readonly credentials: Credentials
      readonly sentinelCredentials: Credentials
    }
  | {
      readonly kind: 'cluster'
      readonly nodes: readonly RedisNode[]
      readonly isTls: boolean
      readonly credentials: Credentials
    }

type SeveralServers = Exclude<RedisTarget, { readonly kind: 'server' }>

const SENTINEL_PORT = 26_379
const CLUSTER_PORT = 6379
const SEVERAL_SERVERS =
  /^redis(?<tls>s?)\+(?<kind>sentinel|cluster):\/\/(?:(?<user>[^@/?]*)@)?(?<hosts>[^/?]*)(?:\/(?<path>[^?]*))?(?:\?(?<query>.*))?$/
const HOST = /^(?<host>\[[\da-f:.]+\]|[\w.-]+)(?::(?<port>\d{1,5}))?$/i

/**
 * Parses a `REDIS_URL`. WHATWG URLs name one host, so those of several servers are parsed here:
 *
 *     redis+sentinel://[user:password@]host[:26379],…/master[/db][?sentinel_username=&sentinel_password=]
 *     redis+cluster://[user:password@]host[:6379],…
 *
 * `rediss+…` encrypts every connection. Throws a sentence that repeats no password.
 */
export function parseRedisUrl(url: string): RedisTarget {
  if (/^rediss?:\/\/.|^\//.test(url)) return { kind: 'server', url }
  const groups = SEVERAL_SERVERS.exec(url)?.groups
  if (groups === undefined) {
    throw new Error(
      'must begin with redis://, rediss://, redis+sentinel:// or redis+cluster://, or be the path of a socket',
    )
  }
  return groups.kind === 'sentinel' ? parseSentinel(groups) : parseCluster(groups)
}

/** Whether every named server is on this machine. */
export function isLocalRedis(url: string): boolean {
  if (url.startsWith('/')) return true
  return hostsOf(url).every((host) => /^(localhost|127(\.\d+){3}|\[?::1\]?|)$/.test(host))
}

type Groups = Readonly<Record<string, string | undefined>>

function parseSentinel({ tls, user, hosts = '', path = '', query = '' }: Groups): SeveralServers {
  const [masterName = '', db = '0', ...more] = path.split('/').map(decode)
  if (masterName === '') {
    throw new Error('names no master: write redis+sentinel://host:26379,host:26379/mymaster')
  }
  if (!/^\d{1,4}$/.test(db) || more.length > 0) {
    throw new Error('must end with /<master name> or /<master name>/<database number>')
  }
  const given = new URLSearchParams(query)
  const known = ['sentinel_username', 'sentinel_password']
  for (const name of given.keys()) {
    if (!known.includes(name)) {
      throw new Error(`has the unknown parameter ${name}: known are ${known.join(', ')}`)
    }
  }
  const [username, password] = known.map((name) => given.get(name) ?? '')
  return {
    kind: 'sentinel',
    sentinels: parseHosts(hosts, SENTINEL_PORT),
    masterName,
    db: Number(db),
    isTls: tls === 's',
    credentials: parseCredentials(user),
    sentinelCredentials: credentialsOf(username, password),
  }
}

function parseCluster({ tls, user, hosts = '', path = '', query = '' }: Groups): SeveralServers {
  if (!/^0?$/.test(path) || query !== '') {
    throw new Error('may end with the hosts only: a cluster has no further databases or parameters')
  }
  const nodes = parseHosts(hosts, CLUSTER_PORT)
  return { kind: 'cluster', nodes, isTls: tls === 's', credentials: parseCredentials(user) }
}

function parseHosts(text: string, defaultPort: number): readonly RedisNode[] {
  return text.split(',').map((part) => {
    const { host, port } = HOST.exec(part)?.groups ?? {}
    const number = Number(port ?? defaultPort)
    if (host === undefined || number === 0 || number > 65_535) {
      throw new Error(`has "${part}" where host or host:port is expected`)
    }
    return { host: host.replace(/^\[|\]$/g, ''), port: number }
  })
}

function parseCredentials(user = ''): Credentials {
  const colon = user.indexOf(':')
  // A text without a colon is a user without a password, as in redis://.
  return colon < 0
    ? credentialsOf(decode(user))
    : credentialsOf(decode(user.slice(0, colon)), decode(user.slice(colon + 1)))
}

function credentialsOf(username = '', password = ''): Credentials {
  return { ...(username !== '' && { username }), ...(password !== '' && { password }) }
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw new Error('has a % that begins no escape: write it as %25')
  }
}

function hostsOf(url: string): readonly string[] {
  try {
    const target = parseRedisUrl(url)
    if (target.kind === 'server') return URL.canParse(url) ? [new URL(url).hostname] : []
    const nodes = target.kind === 'sentinel' ? target.sentinels : target.nodes
    return nodes.map(({ host }) => host)
  } catch {
    // Reported as a problem of REDIS_URL.
    return []
  }
}
