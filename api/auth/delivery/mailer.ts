import type { Mailer, MailVariables } from '#api/auth/ports.ts'
import type { Clock } from '#shared/clock.ts'
import type { MailerConfig, MailKind, SmtpConfig } from '#shared/config/auth-mail.ts'
import { failure } from '#shared/errors.ts'
import type { Logger } from '#shared/logger.ts'
import { createGuardedFetch, type GuardedFetch } from '#shared/net/guarded-fetch.ts'

import { BUILT_IN_TEMPLATES } from './built-in-templates.ts'
import { htmlToText } from './plain-text.ts'
import { renderTemplate, TemplateError } from './render-template.ts'
import { createTemplates } from './templates.ts'

/** A mailer that keeps connections to the mail server open. */
export interface SmtpMailer extends Mailer {
  close(): void
}

/** Options of the mailer. */
interface SmtpMailerOptions {
  readonly smtp: SmtpConfig
  readonly mailer: Pick<
    MailerConfig,
    'subjects' | 'templates' | 'templateCacheSeconds' | 'allowsPrivateTemplateHosts'
  >
  readonly siteUrl: string
  readonly clock: Clock
  readonly log: Logger
  /** Fetches templates. */
  readonly fetch?: GuardedFetch
  /** The total time limit of one mail, in milliseconds. */
  readonly deliveryTimeoutMs?: number
}

const CONNECTIONS_MAX = 4
const WAITING_MAX = 500 // Mails that wait for a connection; bounds the memory while the server is dead.
const SMTP_TIMEOUT_MS = 5_000
// A request that waits for its mail has ten seconds, and may have fetched a template first.
const DELIVERY_TIMEOUT_MS = 6_000
const TEMPLATE_TIMEOUT_MS = 3_000
const TEMPLATE_BYTES_MAX = 262_144 // 256 KiB: mail programs cut longer mails anyway
const SUBJECT_CHARS_MAX = 200
const SMTPS_PORT = 465

// The values of `$messageType` in further headers.
const MESSAGE_TYPES: Readonly<Record<MailKind, string>> = {
  invite: 'invite',
  confirmation: 'confirm',
  recovery: 'recovery',
  magicLink: 'magiclink',
  emailChange: 'email_change',
  reauthentication: 'reauthenticate',
}

/**
 * Sends mails over SMTP. Without a mail server in the settings, mails are dropped with a warning.
 */
export function createMailer(options: SmtpMailerOptions): SmtpMailer {
  const { smtp, mailer, siteUrl, clock, log } = options
  const timeoutMs = options.deliveryTimeoutMs ?? DELIVERY_TIMEOUT_MS
  const fetch =
    options.fetch ??
    createGuardedFetch({
      timeoutMs: TEMPLATE_TIMEOUT_MS,
      bodyBytesMax: TEMPLATE_BYTES_MAX,
      redirectsMax: 3,
      allowsPrivateAddresses: mailer.allowsPrivateTemplateHosts,
    })
  const templates = createTemplates({ config: mailer, siteUrl, fetch, clock, log })
  let opened: ReturnType<typeof openTransport> | undefined
  let waiting = 0
  return {
    async send({ kind, to, variables }) {
      if (smtp.host === '') {
        log.warn({ operation: 'mail.send', kind }, 'no mail server is set; the mail was dropped')
        return
      }
      const values = valuesOf(variables, to)
      const html = renderBody(log, { kind, template: await templates.get(kind), values })
      if (waiting >= WAITING_MAX) throw failure.overloaded('The mail server is too slow')
      waiting += 1
      try {
        opened ??= openTransport(smtp)
        const transport = await opened
        await transport.sendMail({
          from: { name: oneLine(smtp.senderName), address: smtp.adminEmail },
          // An object, not a string: no comma in an address can add a recipient.
          to: { name: '', address: oneLine(to) },
          subject: renderSubject(log, { kind, subject: mailer.subjects[kind], values }),
          html,
          text: htmlToText(html),
          headers: headersOf(smtp, kind),
          disableFileAccess: true,
          disableUrlAccess: true,
          signal: AbortSignal.timeout(timeoutMs),
        })
      } catch (error) {
        throw failure.internal('Error sending email', { code: 'unexpected_failure', cause: error })
      } finally {
        waiting -= 1
      }
    },
    close() {
      void opened?.then((transport) => transport.close())
    },
  }
}

async function openTransport(smtp: SmtpConfig) {
  // Loaded with the first mail, because a process that sends none saves the memory.
  const { createTransport } = await import('nodemailer')
  return createTransport({
    host: smtp.host,
    port: smtp.port,
    // Port 465 is encrypted from the first byte; elsewhere STARTTLS is used when offered.
    secure: smtp.port === SMTPS_PORT,
    // A password never crosses the network in the clear, except to this machine.
    requireTLS: smtp.user !== '' && !isLoopback(smtp.host),
    ...(smtp.user !== '' && { auth: { user: smtp.user, pass: smtp.password } }),
    tls: { rejectUnauthorized: smtp.isCertificateChecked },
    pool: true,
    maxConnections: CONNECTIONS_MAX,
    maxRequeues: 1,
    dnsTimeout: SMTP_TIMEOUT_MS,
    connectionTimeout: SMTP_TIMEOUT_MS,
    greetingTimeout: SMTP_TIMEOUT_MS,
    socketTimeout: SMTP_TIMEOUT_MS,
    disableFileAccess: true,
    disableUrlAccess: true,
  })
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || host.startsWith('127.')
}

function valuesOf(variables: MailVariables, to: string): Record<string, unknown> {
  return {
    SiteURL: variables.siteUrl,
    ConfirmationURL: variables.confirmationUrl,
    Email: variables.email,
    NewEmail: variables.newEmail ?? '',
    SendingTo: to,
    Token: variables.token,
    TokenHash: variables.tokenHash,
    RedirectTo: variables.redirectTo,
    Data: variables.data,
  }
}

interface Body {
  readonly kind: MailKind
  readonly template: string
  readonly values: Record<string, unknown>
}

function renderBody(log: Logger, { kind, template, values }: Body): string {
  try {
    return renderTemplate(template, values)
  } catch (error) {
    if (!(error instanceof TemplateError)) throw error
    log.warn({ operation: 'mail.template', kind, reason: error.message }, 'template not usable')
    return renderTemplate(BUILT_IN_TEMPLATES[kind], values)
  }
}

function renderSubject(
  log: Logger,
  { kind, subject, values }: { kind: MailKind; subject: string; values: Record<string, unknown> },
): string {
  try {
    const whole = oneLine(renderTemplate(subject, values, (text) => text))
    // Cut by characters, so that none is split.
    return [...whole].slice(0, SUBJECT_CHARS_MAX).join('')
  } catch (error) {
    if (!(error instanceof TemplateError)) throw error
    log.warn({ operation: 'mail.subject', kind, reason: error.message }, 'subject not usable')
    return oneLine(subject)
  }
}

function headersOf(smtp: SmtpConfig, kind: MailKind) {
  return Object.entries(smtp.headers).flatMap(([key, values]) =>
    values.map((value) => ({
      key: oneLine(key),
      value: oneLine(value.replaceAll('$messageType', MESSAGE_TYPES[kind])),
    })),
  )
}

// Line breaks would start another header.
function oneLine(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: it removes them.
  return text.replace(/[\u0000-\u001f\u007f\u2028\u2029]+/g, ' ').trim()
}
