import { invalid } from '#api/auth/errors.ts'
import { ServiceError } from '#shared/errors.ts'

/** An address or number at which a user can be reached. */
export type Contact =
  | { readonly kind: 'email'; readonly email: string }
  | { readonly kind: 'phone'; readonly phone: string }

const EMAIL_CHARACTERS_MAX = 255
// The syntax of HTML's <input type=email>, with at least one dot-free label and no empty ones.
const EMAIL =
  /^[a-z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*$/i
const PHONE = /^[1-9][0-9]{1,14}$/

/** Lower-cases an email address. Throws when it is not one. */
export function parseEmail(text: string): string {
  if (text === '') throw invalid('An email address is required', 'email')
  if (text.length > EMAIL_CHARACTERS_MAX) {
    throw invalid('An email address is too long', 'email')
  }
  // Checked before lower-casing, which turns the Kelvin sign into a plain k.
  if (!EMAIL.test(text)) {
    throw invalid('Unable to validate email address: invalid format', 'email')
  }
  return text.toLowerCase()
}

/** Strips the plus sign and blanks of an E.164 number. Throws when it is not one. */
export function parsePhone(text: string): string {
  const phone = text.replace(/^\+/, '').replaceAll(' ', '')
  if (!PHONE.test(phone)) throw invalid('Invalid phone number format (E.164 required)', 'phone')
  return phone
}

interface ContactFailures {
  readonly both: string
  readonly none: string
  /** Replaces the failure of a malformed address or number. */
  readonly malformed?: ((kind: Contact['kind']) => ServiceError | undefined) | undefined
}

/** The contact of a body, which must name exactly one; each endpoint has its own errors. */
export function parseContact(
  body: { readonly email?: string | undefined; readonly phone?: string | undefined },
  failures: ContactFailures,
): Contact {
  const { email = '', phone = '' } = body
  if (email !== '' && phone !== '') throw invalid(failures.both)
  if (email === '' && phone === '') throw invalid(failures.none)
  try {
    return email === ''
      ? { kind: 'phone', phone: parsePhone(phone) }
      : { kind: 'email', email: parseEmail(email) }
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error
    throw failures.malformed?.(email === '' ? 'phone' : 'email') ?? error
  }
}

/** The address or number itself. */
export function nameOf(contact: Contact): string {
  return contact.kind === 'email' ? contact.email : contact.phone
}

/** Whether mail may be sent to this address: any address, or those on the list, ignoring labels. */
export function isAuthorizedAddress(email: string, authorized: readonly string[]): boolean {
  if (authorized.length === 0) return true
  const plain = email.replace(/\+[^@]*@/, '@')
  return authorized.some((entry) => entry.toLowerCase() === plain || entry.toLowerCase() === email)
}
