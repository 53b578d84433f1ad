import type { ServerConfig } from '#shared/config/server.ts'

/** The listener's settings for a test: a free port, short waits. */
export function serverConfig(overrides: Partial<ServerConfig> = {}): ServerConfig {
  return {
    host: '127.0.0.1',
    port: 0,
    requestIdHeader: '',
    bodyBytesMax: 1024 * 1024,
    largeBodiesBytesMax: 256 * 1024 * 1024,
    drainTimeoutSeconds: 1,
    trustedProxies: [],
    urlSigningSecret: 'secret of the tests',
    adminToken: '',
    slowRequestSeconds: 5,
    ...overrides,
  }
}
