import { Resolver } from 'node:dns/promises'

import { authFailure } from '#api/auth/errors.ts'
import type { Contact } from '#api/auth/users/contact.ts'
import { withinTime } from '#shared/clock.ts'
import type { MailerConfig } from '#shared/config/auth-mail.ts'
import { createGuardedFetch } from '#shared/net/guarded-fetch.ts'
import { createHostResolver } from '#shared/net/resolve-host.ts'

/** Decides whether an address can receive mail. */
export interface AddressValidator {
  /** Throws `email_address_invalid` for an email address that cannot receive mail. */
  requireDeliverable(contact: Contact): Promise<void>
}

/** The methods of a DNS resolver that are used. */
export interface MailResolver {
  resolveMx(host: string): Promise<readonly { readonly exchange: string }[]>
  lookup(host: string): Promise<unknown>
}

const TIMEOUT_MS = 3000
const ANSWER_BYTES_MAX = 4096

/**
 * Checks addresses according to the settings: for known mistakes, by DNS, and by a service. An
 * address that cannot be checked counts as deliverable, so that an outage of DNS or of the service
 * locks out no user.
 */
export function createAddressValidator(
  config: MailerConfig['validation'],
  resolver: MailResolver = openResolver(),
): AddressValidator {
  const { isExtended, serviceUrl } = config
  const asksService = createService(config)
  return {
    async requireDeliverable(contact) {
      if (contact.kind !== 'email' || !(isExtended || serviceUrl !== '')) return
      const { email } = contact
      const verdicts = [
        ...(isExtended ? [hasMailServer(resolver, config, email)] : []),
        ...(serviceUrl === '' ? [] : [asksService(email)]),
      ]
      if (isExtended && isKnownMistake(email)) throw invalidAddress(email)
      const results = await Promise.all(verdicts.map(orDeliverable))
      if (results.includes(false)) throw invalidAddress(email)
    },
  }
}

// Lookups at a silent name server end when the answer no longer waits for them.
function openResolver(): MailResolver {
  const resolver = new Resolver({ timeout: TIMEOUT_MS / 2, tries: 2 })
  return { resolveMx: (host) => resolver.resolveMx(host), lookup: createHostResolver() }
}

function orDeliverable(verdict: Promise<boolean>): Promise<boolean> {
  return withinTime(verdict, TIMEOUT_MS, () => new Error('no answer')).catch(() => true)
}

const INVALID_ADDRESSES = [
  'test@gmail.com',
  'example@gmail.com',
  'someone@gmail.com',
  'test@email.com',
]
// The names that RFC 2606 reserves, and hosts that are typed by mistake or as a placeholder.
const RESERVED_LABELS = ['test', 'example', 'invalid', 'local', 'localhost']
const INVALID_HOSTS = [
  ...['test.com', 'example.com', 'example.net', 'example.org'],
  ...['gamil.com', 'anonymous.com', 'email.com'],
]
// Gmail has no shorter names.
const GMAIL_NAME_CHARACTERS_MIN = 6

function isKnownMistake(email: string): boolean {
  const at = email.lastIndexOf('@')
  const [name, host] = [email.slice(0, at), email.slice(at + 1)]
  const label = host.slice(host.lastIndexOf('.') + 1)
  const isTooShort = host === 'gmail.com' && name.length < GMAIL_NAME_CHARACTERS_MIN
  return (
    isTooShort ||
    INVALID_ADDRESSES.includes(email) ||
    INVALID_HOSTS.includes(host) ||
    RESERVED_LABELS.includes(label)
  )
}

async function hasMailServer(
  resolver: MailResolver,
  { blockedMailServers }: MailerConfig['validation'],
  email: string,
): Promise<boolean> {
  const host = email.slice(email.lastIndexOf('@') + 1)
  try {
    const servers = await resolver.resolveMx(host)
    return !servers.some(({ exchange }) => blockedMailServers.includes(plainHost(exchange)))
  } catch (error) {
    if (!isUnknownHost(error)) throw error
  }
  if (blockedMailServers.includes(host)) return false
  // Without an MX record mail goes to the host itself (RFC 5321, 5.1).
  return resolver.lookup(host).then(
    () => true,
    (error: unknown) => !isUnknownHost(error),
  )
}

function isUnknownHost(error: unknown): boolean {
  const { code } = error as { readonly code?: unknown }
  return code === 'ENOTFOUND' || code === 'ENODATA'
}

/** A host name in comparable form: lower-case, without the trailing dot. */
function plainHost(host: string): string {
  return host.toLowerCase().replace(/\.$/, '')
}

function createService(config: MailerConfig['validation']): (email: string) => Promise<boolean> {
  const { serviceUrl: url, serviceHeaders } = config
  const fetch = createGuardedFetch({
    timeoutMs: TIMEOUT_MS,
    bodyBytesMax: ANSWER_BYTES_MAX,
    allowsPrivateAddresses: true,
  })
  const headers = Object.fromEntries(
    Object.entries(serviceHeaders).map(([name, values]) => [name, values.at(-1) ?? '']),
  )
  return async (email) => {
    const reply = await fetch({ url, method: 'POST', headers, json: JSON.stringify({ email }) })
    if (reply.status < 200 || reply.status > 299) return true
    const answer: unknown = JSON.parse(reply.text)
    return (answer as { readonly valid?: unknown } | null)?.valid !== false
  }
}

function invalidAddress(email: string): Error {
  const message = `Email address "${email}" is invalid`
  return authFailure('email_address_invalid', { message, param: 'email' })
}
