import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type Server, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { join } from 'node:path'

import PostalMime from 'postal-mime'
import { SMTPServer } from 'smtp-server'

import { handleInOrder } from '#shared/net/pipelining.ts'

import { findFreePort } from './child.ts'

/** The embedded mail server for installations without one. */
export interface Mailbox {
  readonly smtpPort: number
  /** The SMTP credentials, because other local users can reach the port. */
  readonly smtpUser: string
  readonly smtpPassword: string
  /**
   * A page that shows the mails. Its path is secret, because other local users can reach the port.
   */
  readonly pageUrl: string
  /** The folder of their files. */
  readonly folder: string
  stop(): Promise<void>
}

interface StoredMail {
  readonly receivedAt: string
  readonly to: string
  readonly subject: string
  readonly text: string
}

const SMTP_USER = 'millrace'
const SECRET_BYTES = 24
const CHECK_INTERVAL_MS = 1000
const MAILS_MAX = 500
const CLIENTS_MAX = 64
const MAIL_BYTES_MAX = 5 * 1024 * 1024
const TEXT_CHARACTERS_MAX = 20_000
const PAGE_HEADERS = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy':
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
}

/** The time limits of a client's connection. */
interface MailboxLimits {
  readonly smtpMs: number
  readonly requestMs: number
  readonly answerMs: number
}

const LIMITS: MailboxLimits = { smtpMs: 60_000, requestMs: 5000, answerMs: 30_000 }

/**
 * Starts a mail server that delivers into files, and the page that shows them; both on loopback.
 */
export async function startMailbox(
  folder: string,
  limits: MailboxLimits = LIMITS,
): Promise<Mailbox> {
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const smtpPort = await findFreePort()
  const smtpPassword = randomBytes(SECRET_BYTES).toString('hex')
  const smtp = createSmtp(folder, smtpPassword)
  // The library's own limit restarts with every byte.
  smtp.server.on('connection', (socket: Socket) => endAfter(socket, limits.smtpMs))
  await new Promise<void>((resolve, reject) => {
    smtp.once('error', reject)
    smtp.listen(smtpPort, '127.0.0.1', resolve)
  })
  // A client that disconnects must not end the process.
  smtp.on('error', () => {})
  const path = `/${randomBytes(SECRET_BYTES).toString('hex')}/`
  const page = createPage(folder, path, limits)
  const pagePort = await findFreePort(8025)
  page.listen(pagePort, '127.0.0.1')
  await once(page, 'listening')
  return {
    smtpPort,
    smtpUser: SMTP_USER,
    smtpPassword,
    pageUrl: `http://127.0.0.1:${pagePort}${path}`,
    folder,
    async stop() {
      page.closeAllConnections()
      page.close()
      await new Promise<void>((resolve) => smtp.close(() => resolve()))
    },
  }
}

function createSmtp(folder: string, password: string): SMTPServer {
  return new SMTPServer({
    // On loopback only: without TLS the credentials do not leave this machine.
    allowInsecureAuth: true,
    disabledCommands: ['STARTTLS'],
    authMethods: ['PLAIN', 'LOGIN'],
    onAuth(given, _session, done) {
      const isRight =
        isSame(given.username ?? '', SMTP_USER) && isSame(given.password ?? '', password)
      if (isRight) done(null, { user: SMTP_USER })
      else done(Object.assign(new Error('wrong credentials'), { responseCode: 535 }))
    },
    size: MAIL_BYTES_MAX,
    maxClients: CLIENTS_MAX,
    onData(stream, _session, done) {
      const chunks: Buffer[] = []
      stream.on('data', (chunk: Buffer) => {
        if (!stream.sizeExceeded) chunks.push(chunk)
      })
      stream.on('error', done)
      stream.on('end', () => {
        if (stream.sizeExceeded) {
          done(Object.assign(new Error('the mail is too long'), { responseCode: 552 }))
          return
        }
        store(folder, Buffer.concat(chunks)).then(
          () => done(),
          (error: Error) => done(error),
        )
      })
    },
  })
}

async function store(folder: string, raw: Buffer): Promise<void> {
  const parsed = await PostalMime.parse(raw)
  const receivedAt = new Date().toISOString()
  const mail: StoredMail = {
    receivedAt,
    to: (parsed.to ?? []).map(({ address }) => address).join(', '),
    subject: parsed.subject ?? '',
    text: (parsed.text || textOf(parsed.html ?? '')).slice(0, TEXT_CHARACTERS_MAX),
  }
  const digest = createHash('sha256').update(raw).digest('hex').slice(0, 8)
  const name = `${receivedAt.replaceAll(':', '-')}-${digest}`
  await writeFile(join(folder, `${name}.eml`), raw, { mode: 0o600 })
  await writeFile(join(folder, `${name}.json`), JSON.stringify(mail, null, 2), { mode: 0o600 })
  const names = await listMails(folder)
  for (const old of names.slice(MAILS_MAX)) {
    await rm(join(folder, `${old}.eml`), { force: true })
    await rm(join(folder, `${old}.json`), { force: true })
  }
}

/** The text of a mail without a plain part; each link is followed by its URL. */
function textOf(html: string): string {
  return html
    .replace(/<(style|script|head)\b.*?<\/\1>/gis, '')
    .replace(/<a\b[^>]*?href="([^"]*)"[^>]*>(.*?)<\/a>/gis, '$2: $1')
    .replace(/<\/?(p|div|h\d|br|li|tr)\b[^>]*>/gi, '\n')
    .replace(/<[^>]*>/g, '')
    .replace(/&(amp|lt|gt|quot|#39|nbsp);/g, (entity) => ENTITIES[entity] ?? entity)
    .replace(/\n\s*\n\s*/g, '\n\n')
    .trim()
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&amp;': '&',
  '&lt;': '<',
  '&gt;': '>',
  '&quot;': '"',
  '&#39;': "'",
  '&nbsp;': ' ',
}

/** Names of the stored mails, newest first. */
async function listMails(folder: string): Promise<string[]> {
  const names = (await readdir(folder)).filter((name) => name.endsWith('.json'))
  return names
    .map((name) => name.slice(0, -'.json'.length))
    .sort()
    .reverse()
}

function isSame(given: string, expected: string): boolean {
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest()
  return timingSafeEqual(digest(given), digest(expected))
}

function createPage(folder: string, path: string, { requestMs, answerMs }: MailboxLimits): Server {
  const options = {
    requestTimeout: requestMs,
    headersTimeout: requestMs,
    connectionsCheckingInterval: Math.min(requestMs, CHECK_INTERVAL_MS),
  }
  const listener = handleInOrder((request, response) => {
    endAfter(response, answerMs)
    // Refuses foreign host names: DNS rebinding must not read the mails.
    const host = (request.headers.host ?? '').split(':')[0]
    if (host !== '127.0.0.1' && host !== 'localhost') {
      response.writeHead(403).end()
      return
    }
    if (!isSame(request.url ?? '', path)) {
      response.writeHead(404).end()
      return
    }
    renderPage(folder).then(
      (html) => response.writeHead(200, PAGE_HEADERS).end(html),
      () => response.writeHead(500).end(),
    )
  })
  const server = createServer(options, listener)
  server.maxConnections = CLIENTS_MAX
  server.on('clientError', (_error, socket) => socket.destroy())
  return server
}

function endAfter(peer: Socket | ServerResponse, timeoutMs: number): void {
  const timer = setTimeout(() => peer.destroy(), timeoutMs)
  peer.once('close', () => clearTimeout(timer))
}

async function renderPage(folder: string): Promise<string> {
  const names = await listMails(folder)
  const mails = await Promise.all(
    // A file that is being written or removed, or is damaged, does not hide the others.
    names.map((name) => readMail(join(folder, `${name}.json`)).catch(() => undefined)),
  )
  const articles = mails
    .filter((mail) => mail !== undefined)
    .map(
      (mail) => `<article><h2>${escapeHtml(mail.subject)}</h2>
<p class="meta">to <bdi>${escapeHtml(mail.to)}</bdi> · ${escapeHtml(mail.receivedAt)}</p><pre>${withLinks(mail.text)}</pre></article>`,
    )
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Mailbox</title>
<meta name="viewport" content="width=device-width"><style>
:root { color-scheme: light dark; color: canvastext; background: canvas; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 46rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere }
article { border-top: 1px solid #8886; padding: .5rem 0 }
h2 { font-size: 1.1rem; margin: .5rem 0 0 } .meta { margin: 0; opacity: .7 }
pre { white-space: pre-wrap; font: inherit }
</style></head><body><h1>Mailbox</h1>
<p>Mails that this installation sent. They go no further than this page.</p>
${articles.join('\n') || '<p>Nothing yet.</p>'}</body></html>`
}

async function readMail(path: string): Promise<StoredMail> {
  return JSON.parse(await readFile(path, 'utf8'))
}

/** Turns URLs into links without the quotes, brackets and full stops around them. */
function withLinks(text: string): string {
  return text
    .split(/(https?:\/\/[^\s<>"]*[^\s<>"'.,;:!?)\]}])/)
    .map(escapeHtml)
    .map((part, index) =>
      index % 2 === 1 ? `<a href="${part}" rel="noreferrer"><bdi>${part}</bdi></a>` : part,
    )
    .join('')
}

function escapeHtml(text: string): string {
  return text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`)
}
