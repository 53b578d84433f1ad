import { readFileSync } from 'node:fs'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g

/**
 * Trusts the certificate authorities of a PEM file besides those of Node, for every connection that
 * this process opens afterwards: Redis, Postgres, object storage, mail, the model hub. Unlike
 * `NODE_EXTRA_CA_CERTS` it can be set in `.env`, and a wrong file is an error.
 */
export function trustAuthorities(file: string | undefined): void {
  if (file === undefined || file === '') return
  const found = readText(file).match(CERTIFICATE)
  if (found === null)
    throw new Error(`MILLRACE_CA_FILE: ${file} contains no certificate in PEM form`)
  setDefaultCACertificates([...getCACertificates('default'), ...found])
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (cause) {
    throw new Error(`MILLRACE_CA_FILE cannot be read: ${(cause as Error).message}`, { cause })
  }
}
