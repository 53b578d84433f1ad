import { type LookupAddress, lookup } from 'node:dns'
import { Resolver } from 'node:dns/promises'
import { readFile } from 'node:fs/promises'
import { isIP } from 'node:net'
import { join } from 'node:path'

/** All IP addresses of a host name. Rejects with the `code` of Node's DNS errors. */
export type ResolveHost = (hostname: string) => Promise<readonly LookupAddress[]>

interface HostResolverOptions {
  /** The name servers; those of the system if absent. */
  readonly servers?: readonly string[]
  readonly hostsFile?: string
  /** The time limit of one try at one server. */
  readonly tryMs?: number
  /** Lookups in flight at a time; further ones are refused. */
  readonly openMax?: number
  /**
   * Whether the operating system also looks up unknown names, because it knows search domains and
   * local names. Public names need neither.
   */
  readonly asksSystem?: boolean
  /** The lookup of the operating system; tests replace it. */
  readonly bySystem?: ResolveHost
}

const TRY_MS = 2000
const TRIES = 2
const OPEN_MAX = 256
const UNKNOWN: readonly unknown[] = ['ENOTFOUND', 'ENODATA']
/** No name server is configured, or none runs there. */
const NO_SERVER = 'ECONNREFUSED'

/**
 * Creates the DNS lookup for names that clients choose. Node's `dns.lookup` occupies a thread of
 * the pool that files and cryptography need, for as long as a name server is silent: four such
 * names would stop a process. This lookup reads the hosts file and asks the name servers over
 * sockets. At most one thread serves names that only the operating system can look up.
 */
export function createHostResolver(options: HostResolverOptions = {}): ResolveHost {
  const { servers, hostsFile = systemHostsFile(), tryMs = TRY_MS, openMax = OPEN_MAX } = options
  // A new resolver for each lookup, because a resolver reads the system's name servers only once.
  const openResolver = (): Resolver => {
    const resolver = new Resolver({ timeout: tryMs, tries: TRIES })
    if (servers !== undefined) resolver.setServers(servers)
    return resolver
  }
  const askSystem = oneAtATime(options.bySystem ?? resolveBySystem)
  const isForSystem = (error: unknown): boolean => {
    const { code } = error as { readonly code?: unknown }
    return code === NO_SERVER || (options.asksSystem === true && UNKNOWN.includes(code))
  }
  let open = 0
  return async (hostname) => {
    if (open >= openMax) throw dnsError('EBUSY', `too many lookups beside ${hostname}`)
    open += 1
    try {
      const name = hostname.toLowerCase().replace(/\.$/, '')
      const known = loopbackOf(name) ?? (await readHosts(hostsFile)).get(name)
      if (known !== undefined) return known
      return await askServers(openResolver(), name).catch((error: unknown) => {
        if (isForSystem(error)) return askSystem(hostname)
        throw error
      })
    } finally {
      open -= 1
    }
  }
}

/** The lookup of the operating system, for names that the operator chose. */
export const resolveBySystem: ResolveHost = (hostname) =>
  new Promise((resolve, reject) => {
    lookup(hostname, { all: true }, (error, found) => (error ? reject(error) : resolve(found)))
  })

async function askServers(resolver: Resolver, name: string): Promise<readonly LookupAddress[]> {
  const [v4, v6] = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)])
  const found = [
    ...(v4.status === 'fulfilled' ? v4.value : []).map((address) => ({ address, family: 4 })),
    ...(v6.status === 'fulfilled' ? v6.value : []).map((address) => ({ address, family: 6 })),
  ]
  if (found.length > 0) return found
  if (v4.status === 'rejected') throw v4.reason
  throw v6.status === 'rejected' ? v6.reason : dnsError('ENODATA', `${name} has no address`)
}

/** The names in a hosts file; none if it cannot be read. */
async function readHosts(path: string): Promise<ReadonlyMap<string, readonly LookupAddress[]>> {
  const text = await readFile(path, 'utf8').catch(() => '')
  const hosts = new Map<string, LookupAddress[]>()
  for (const line of text.split('\n')) {
    const [address = '', ...names] = line.replace(/#.*/, '').trim().split(/\s+/)
    const family = isIP(address)
    if (family === 0) continue
    for (const name of names.map((each) => each.toLowerCase())) {
      hosts.set(name, [...(hosts.get(name) ?? []), { address, family }])
    }
  }
  return hosts
}

// RFC 6761: these names never leave the machine.
function loopbackOf(name: string): readonly LookupAddress[] | undefined {
  if (name !== 'localhost' && !name.endsWith('.localhost')) return undefined
  return [
    { address: '127.0.0.1', family: 4 },
    { address: '::1', family: 6 },
  ]
}

function systemHostsFile(): string {
  if (process.platform !== 'win32') return '/etc/hosts'
  return join('C:', 'Windows', 'System32', 'drivers', 'etc', 'hosts')
}

/** Runs one call after the other. */
function oneAtATime(resolve: ResolveHost): ResolveHost {
  let last: Promise<unknown> = Promise.resolve()
  return (hostname) => {
    const next = last.then(() => resolve(hostname))
    last = next.catch(() => undefined)
    return next
  }
}

function dnsError(code: string, message: string): Error {
  return Object.assign(new Error(message), { code })
}
