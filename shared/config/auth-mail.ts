import { parseDurationMs } from '#shared/clock.ts'

import type { EnvReader } from './env-reader.ts'

/** The kinds of messages that users get by email. */
export const MAIL_KINDS = [
  'invite',
  'confirmation',
  'recovery',
  'magicLink',
  'emailChange',
  'reauthentication',
] as const

/** The kind of a mail. */
export type MailKind = (typeof MAIL_KINDS)[number]

/** The content of mails and the lifetime of their codes. */
export interface MailerConfig {
  readonly isAutoconfirm: boolean
  readonly isSecureEmailChangeEnabled: boolean
  readonly allowsUnverifiedSignIns: boolean
  readonly otpTtlSeconds: number
  readonly otpLength: number
  /** Further hosts that links may use when a request arrives through them. */
  readonly externalHosts: readonly string[]
  /** When the list is not empty, only these addresses receive mail. */
  readonly authorizedAddresses: readonly string[]
  readonly urlPaths: Readonly<Record<MailKind, string>>
  readonly subjects: Readonly<Record<MailKind, string>>
  /** URLs of templates; empty for the built-in one. */
  readonly templates: Readonly<Record<MailKind, string>>
  /** Whether templates may be fetched from private addresses. */
  readonly allowsPrivateTemplateHosts: boolean
  readonly templateCacheSeconds: number
  /** Validation of email addresses before mail is sent to them. */
  readonly validation: {
    readonly isExtended: boolean
    /** Empty when there is none. */
    readonly serviceUrl: string
    readonly serviceHeaders: Readonly<Record<string, readonly string[]>>
    /** Lower-case names of mail servers, without a dot at the end. */
    readonly blockedMailServers: readonly string[]
  }
}

/** The mail server. */
export interface SmtpConfig {
  /** Empty when there is none. */
  readonly host: string
  readonly port: number
  readonly user: string
  readonly password: string
  readonly adminEmail: string
  readonly senderName: string
  /** Seconds between two confirmations to one user. */
  readonly confirmationGapSeconds: number
  /** Seconds between two magic links, recovery links, email changes or nonces for one user. */
  readonly linkGapSeconds: number
  /** Further headers; `$messageType` in a value is replaced by the kind of the message. */
  readonly headers: Readonly<Record<string, readonly string[]>>
  readonly isCertificateChecked: boolean
}

interface MailKindRow {
  readonly suffix: string
  readonly subject: string
}

const MAIL_KIND_ROWS: Readonly<Record<MailKind, MailKindRow>> = {
  invite: { suffix: 'INVITE', subject: 'You have been invited' },
  confirmation: { suffix: 'CONFIRMATION', subject: 'Confirm Your Signup' },
  recovery: { suffix: 'RECOVERY', subject: 'Reset Your Password' },
  magicLink: { suffix: 'MAGIC_LINK', subject: 'Your Magic Link' },
  emailChange: { suffix: 'EMAIL_CHANGE', subject: 'Confirm Email Change' },
  reauthentication: { suffix: 'REAUTHENTICATION', subject: 'Confirm reauthentication' },
}

/** Reads the settings of messages sent by email. */
export function readMailerConfig(env: EnvReader): MailerConfig {
  env.section('User server: mail')
  return {
    isAutoconfirm: env.bool('AUTH_MAILER_AUTOCONFIRM', {
      about: 'treat email addresses as confirmed at sign-up',
      fallback: false,
    }),
    isSecureEmailChangeEnabled: env.bool('AUTH_MAILER_SECURE_EMAIL_CHANGE_ENABLED', {
      about: 'require confirmation from both the old and the new address',
      fallback: true,
    }),
    allowsUnverifiedSignIns: env.bool('AUTH_MAILER_ALLOW_UNVERIFIED_EMAIL_SIGN_INS', {
      about: 'allow external sign-ins with email addresses that the provider has not verified',
      fallback: false,
    }),
    otpTtlSeconds: env.seconds('AUTH_MAILER_OTP_EXP', {
      about: 'validity of a link or code sent by email',
      fallback: 86_400,
    }),
    otpLength: readOtpLength(env, 'AUTH_MAILER_OTP_LENGTH'),
    externalHosts: env.list('AUTH_MAILER_EXTERNAL_HOSTS', {
      about: 'hosts besides that of AUTH_API_EXTERNAL_URL that links may use',
    }),
    authorizedAddresses: env.list('AUTH_EXTERNAL_EMAIL_AUTHORIZED_ADDRESSES', {
      about: 'when set, only these addresses get mail',
    }),
    urlPaths: readUrlPaths(env),
    subjects: byKind(({ suffix, subject }) =>
      env.string(`AUTH_MAILER_SUBJECTS_${suffix}`, { about: 'subject', fallback: subject }),
    ),
    templates: byKind(({ suffix }) =>
      env.string(`AUTH_MAILER_TEMPLATES_${suffix}`, {
        about: 'URL of an HTML template; a path is relative to AUTH_SITE_URL',
      }),
    ),
    allowsPrivateTemplateHosts: env.bool('MILLRACE_MAIL_TEMPLATES_ALLOW_PRIVATE', {
      about: 'fetch mail templates from private IP addresses as well',
      fallback: false,
    }),
    templateCacheSeconds: env.seconds('MILLRACE_MAIL_TEMPLATE_CACHE', {
      about: 'how long a fetched mail template is cached',
      fallback: 10,
    }),
    validation: readValidation(env),
  }
}

/** Reads the settings of the mail server. */
export function readSmtpConfig(env: EnvReader): SmtpConfig {
  const host = env.string('AUTH_SMTP_HOST', {
    about: 'mail server; `millrace up` starts a mailbox if unset',
  })
  const adminEmail = env.string('AUTH_SMTP_ADMIN_EMAIL', { about: 'From address of all mails' })
  if (host !== '' && !adminEmail.includes('@')) {
    env.problem('AUTH_SMTP_ADMIN_EMAIL is required and must be an email address')
  }
  return {
    host,
    port: env.int('AUTH_SMTP_PORT', {
      about: 'port of the mail server',
      fallback: 587,
      max: 65_535,
    }),
    user: env.string('AUTH_SMTP_USER', { about: 'user name at the mail server' }),
    password: env.string('AUTH_SMTP_PASS', {
      about: 'password at the mail server',
      isSecret: true,
    }),
    adminEmail,
    senderName: env.string('AUTH_SMTP_SENDER_NAME', {
      about: 'From name; AUTH_SMTP_ADMIN_EMAIL if unset',
      fallback: adminEmail,
    }),
    ...readGaps(env),
    headers: readHeaders(env, 'AUTH_SMTP_HEADERS', 'mail headers'),
    isCertificateChecked: env.bool('MILLRACE_SMTP_TLS_VERIFY', {
      about: 'refuse mail servers whose TLS certificate is not trusted',
      fallback: true,
    }),
  }
}

/** Length of one-time codes; a value outside 6 to 10 means 6. */
export function readOtpLength(env: EnvReader, name: string): number {
  const length = env.int(name, { about: 'digits of a one-time code, 6 to 10', fallback: 6 })
  return length < 6 || length > 10 ? 6 : length
}

// One setting with two defaults: a confirmation can be repeated after 15 minutes, a sign-in link
// after one.
function readGaps(env: EnvReader): { confirmationGapSeconds: number; linkGapSeconds: number } {
  const text = env.optional('AUTH_SMTP_MAX_FREQUENCY', {
    about:
      'seconds between two mails to one user; 900 for confirmations and 60 for others if unset',
  })
  if (text === undefined) return { confirmationGapSeconds: 900, linkGapSeconds: 60 }
  const ms = parseDurationMs(text)
  if (ms === undefined) env.problem(`AUTH_SMTP_MAX_FREQUENCY must be a duration, not "${text}"`)
  return { confirmationGapSeconds: (ms ?? 0) / 1000, linkGapSeconds: (ms ?? 0) / 1000 }
}

function readValidation(env: EnvReader): MailerConfig['validation'] {
  const prefix = 'AUTH_MAILER_EMAIL_VALIDATION'
  return {
    isExtended: env.bool(`${prefix}_EXTENDED`, {
      about: 'refuse email addresses with known typing errors or without a mail server',
      fallback: false,
    }),
    serviceUrl: env.url(`${prefix}_SERVICE_URL`, {
      about:
        'URL of a service that receives email addresses by POST and answers {"valid": false} to refuse one',
    }),
    serviceHeaders: readHeaders(env, `${prefix}_SERVICE_HEADERS`, 'headers of the service'),
    blockedMailServers: readHosts(env, `${prefix}_BLOCKED_MX`),
  }
}

function readHosts(env: EnvReader, name: string): readonly string[] {
  const text = env.optional(name, {
    about: 'JSON list of mail servers (MX) whose addresses are refused',
  })
  if (text === undefined) return []
  try {
    const hosts: unknown = JSON.parse(text)
    if (Array.isArray(hosts) && hosts.every((host) => typeof host === 'string')) {
      return hosts.map((host) => host.toLowerCase().replace(/\.$/, ''))
    }
  } catch {
    // The JSON check below reports it.
  }
  env.problem(`${name} must be a JSON list of host names`)
  return []
}

function readHeaders(
  env: EnvReader,
  name: string,
  subject: string,
): Readonly<Record<string, readonly string[]>> {
  const text = env.optional(name, {
    about: `JSON object of further ${subject}: name to list of values`,
    // Services get their keys in headers.
    isSecret: name !== 'AUTH_SMTP_HEADERS',
  })
  if (text === undefined) return {}
  try {
    const headers: unknown = JSON.parse(text)
    if (isHeaderMap(headers)) return headers
  } catch {
    // The JSON check below reports it.
  }
  env.problem(`${name} must be a JSON object of header names and lists of strings`)
  return {}
}

function isHeaderMap(value: unknown): value is Record<string, readonly string[]> {
  return (
    typeof value === 'object' &&
    value !== null &&
    Object.entries(value).every(
      ([name, list]) =>
        HEADER_NAME.test(name) &&
        Array.isArray(list) &&
        list.every((entry) => typeof entry === 'string'),
    )
  )
}

// Printable characters except the colon; other characters would be changed on the way.
const HEADER_NAME = /^[!-9;-~]+$/

function readUrlPaths(env: EnvReader): MailerConfig['urlPaths'] {
  const about = 'path of the link in this kind of mail'
  const paths = byKind(({ suffix }) =>
    suffix === 'MAGIC_LINK'
      ? ''
      : env.string(`AUTH_MAILER_URLPATHS_${suffix}`, { about, fallback: '/verify' }),
  )
  const magicLink = env.optional('AUTH_MAILER_URLPATHS_MAGIC_LINK', {
    about: 'path of the link in a magic-link mail; the path of recovery mails if unset',
  })
  return { ...paths, magicLink: magicLink ?? paths.recovery }
}

function byKind(read: (row: MailKindRow) => string): Readonly<Record<MailKind, string>> {
  const entries = MAIL_KINDS.map((kind) => [kind, read(MAIL_KIND_ROWS[kind])] as const)
  return Object.fromEntries(entries) as Record<MailKind, string>
}
