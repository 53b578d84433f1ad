import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** An authority and a certificate for 127.0.0.1, or for another name as OpenSSL writes it. */
export function makeCertificates(folder: string, name = 'IP:127.0.0.1') {
  const path = (name: string): string => join(folder, name)
  const openssl = (...args: string[]): void => {
    const done = spawnSync('openssl', args, { encoding: 'utf8' })
    if (done.status !== 0) throw new Error(done.stderr)
  }
  const key = ['-newkey', 'rsa:2048', '-nodes', '-days', '2']
  openssl(
    'req',
    '-x509',
    ...key,
    '-subj',
    '/CN=Test authority',
    '-keyout',
    path('ca.key'),
    '-out',
    path('ca.pem'),
  )
  openssl(
    'req',
    '-x509',
    ...key,
    '-subj',
    '/CN=Test server',
    '-addext',
    `subjectAltName=${name}`,
    '-addext',
    'basicConstraints=CA:FALSE',
    '-CA',
    path('ca.pem'),
    '-CAkey',
    path('ca.key'),
    '-keyout',
    path('server.key'),
    '-out',
    path('server.pem'),
  )
  return {
    caFile: path('ca.pem'),
    ca: readFileSync(path('ca.pem'), 'utf8'),
    certFile: path('server.pem'),
    keyFile: path('server.key'),
  }
}
