import { Agent as HttpAgent } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import type { Duplex } from 'node:stream'

/**
 * The agents of the two protocols. A request reuses an idle connection to its host if there is one.
 */
export interface KeepAliveAgents {
  readonly http: HttpAgent
  readonly https: HttpsAgent
  /** Closes idle connections. */
  destroy(): void
}

interface KeepAliveLimits {
  /** The most idle connections to one host, and to all hosts of one protocol. */
  readonly idlePerHostMax: number
  readonly idleMax: number
  /** An idle connection is closed after this time. */
  readonly idleMs: number
  /**
   * A connection older than this is closed when it becomes idle, so that names are looked up again.
   */
  readonly ageMs: number
}

/**
 * Opens agents that keep a bounded number of connections for a bounded time. A kept connection
 * stays at the IP address that was checked when it was opened.
 */
export function openKeepAliveAgents(limits: KeepAliveLimits): KeepAliveAgents {
  const options = {
    keepAlive: true,
    maxFreeSockets: limits.idlePerHostMax,
    timeout: limits.idleMs,
    // The youngest idle connection is the least likely to be closed by the server.
    scheduling: 'lifo',
  } as const
  const http = limitIdle(new HttpAgent(options), limits)
  const https = limitIdle(new HttpsAgent(options), limits)
  return {
    http,
    https,
    destroy() {
      http.destroy()
      https.destroy()
    },
  }
}

/** Replaces the method with which an agent decides whether to keep a connection. */
function limitIdle<Agent extends HttpAgent>(agent: Agent, limits: KeepAliveLimits): Agent {
  const usedSinceMs = new WeakMap<Duplex, number>()
  const keep = agent.keepSocketAlive.bind(agent)
  agent.keepSocketAlive = (socket) => {
    const nowMs = performance.now()
    const sinceMs = usedSinceMs.get(socket) ?? nowMs
    usedSinceMs.set(socket, sinceMs)
    if (nowMs - sinceMs >= limits.ageMs || countIdle(agent) >= limits.idleMax) return false
    return keep(socket)
  }
  return agent
}

function countIdle({ freeSockets }: HttpAgent): number {
  return Object.values(freeSockets).reduce((sum, sockets) => sum + (sockets?.length ?? 0), 0)
}
