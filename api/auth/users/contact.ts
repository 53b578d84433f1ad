import { invalid } from '#api/auth/errors.ts'

/** An address or a number by which a user can be reached. */
export type Contact =
  | { readonly kind: 'email'; readonly email: string }
  | { readonly kind: 'phone'; readonly phone: string }

const EMAIL_CHARACTERS_MAX = 255
// The syntax of HTML's <input type=email>, with at least one dot-free label and no empty ones.
const EMAIL =
  /^[a-z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*$/i
const PHONE = /^[1-9][0-9]{1,14}$/

/** Lower-cases an email address. Throws when it is none. */
export function parseEmail(text: string): string {
  if (text === '') throw invalid('An email address is required', 'email')
  if (text.length > EMAIL_CHARACTERS_MAX) {
    throw invalid('An email address is too long', 'email')
  }
  // Before it is lower-cased: that turns the Kelvin sign into a plain k.
  if (!EMAIL.test(text)) {
    throw invalid('Unable to validate email address: invalid format', 'email')
  }
  return text.toLowerCase()
}

/** Strips the plus sign and blanks of an E.164 number. Throws when it is none. */
export function parsePhone(text: string): string {
  const phone = text.replace(/^\+/, '').replaceAll(' ', '')
  if (!PHONE.test(phone)) throw invalid('Invalid phone number format (E.164 required)', 'phone')
  return phone
}

/** The contact of a body that must name exactly one; the messages are the endpoint's own. */
export function parseContact(
  body: { readonly email?: string | undefined; readonly phone?: string | undefined },
  messages: { readonly both: string; readonly none: string },
): Contact {
  const hasEmail = body.email !== undefined && body.email !== ''
  const hasPhone = body.phone !== undefined && body.phone !== ''
  if (hasEmail && hasPhone) throw invalid(messages.both)
  if (hasEmail) return { kind: 'email', email: parseEmail(body.email as string) }
  if (hasPhone) return { kind: 'phone', phone: parsePhone(body.phone as string) }
  throw invalid(messages.none)
}

/** The address or number itself. */
export function nameOf(contact: Contact): string {
  return contact.kind === 'email' ? contact.email : contact.phone
}

/** True when mail may go to this address: everybody, or those on the list; labels do not count. */
export function isAuthorizedAddress(email: string, authorized: readonly string[]): boolean {
  if (authorized.length === 0) return true
  const plain = email.replace(/\+[^@]*@/, '@')
  return authorized.some((entry) => entry.toLowerCase() === plain || entry.toLowerCase() === email)
}
