import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'

import type { AssetFiles } from '#api/pages/asset-files.ts'
import { type Html, html, wayToRoot } from '#api/pages/html.ts'
import { setPageHeaders } from '#api/pages/page-headers.ts'

import { formSecret, isOwnForm, SESSION_COOKIE, setSessionCookie } from './cookies.ts'
import { adminDocument } from './document.ts'
import {
  type ConsoleGuard,
  judgeAdminToken,
  type ShowSignIn,
  TOKEN_NAME,
  tooManyAttempts,
} from './guard.ts'
import { type AdminSession, digestOf } from './sessions.ts'

/** The verdict on an email address and a password. */
export type PasswordVerdict =
  | {
      readonly kind: 'administrator'
      readonly userId: string
      readonly name: string
      readonly sessionId: string
      readonly passwordDigest: string
      /** Whether a second factor was proven. */
      readonly isProven: boolean
    }
  | { readonly kind: 'refused'; readonly status: 401 | 403; readonly reason: string }
  | { readonly kind: 'limited'; readonly seconds: number }

/** Checks an administrator's email address, password and, if enrolled, second factor. */
export type CheckPassword = (
  credentials: { readonly email: string; readonly password: string; readonly code: string },
  request: FastifyRequest,
) => Promise<PasswordVerdict>

interface SignInServices {
  readonly guard: ConsoleGuard
  readonly checkPassword: CheckPassword
  readonly assets: AssetFiles
}

const FORM_BYTES_MAX = 16 * 1024
const FIELD_LENGTH_MAX = 1024

/** The sign-in page with its form, and signing out. None of it requires a credential. */
export function registerSignIn(app: FastifyInstance, services: SignInServices): void {
  app.addContentTypeParser(
    'application/x-www-form-urlencoded',
    { parseAs: 'string', bodyLimit: FORM_BYTES_MAX },
    async (_request: unknown, text: string) => Object.fromEntries(new URLSearchParams(text)),
  )
  const show = signInPage(services)
  for (const path of ['/sign-in', '/sign-in/']) {
    app.get(path, { schema: { hide: true } }, async (request, reply) => show(request, reply))
  }
  app.post<{ Body: Form | undefined }>('/sign-in', { schema: { hide: true } }, (request, reply) =>
    signIn(services, request, reply),
  )
  app.post<{ Body: Form | undefined }>(
    '/sign-out',
    { schema: { hide: true } },
    async (request, reply) => {
      if (!isOwnForm(request, request.body?.form)) return foreignForm(services, request, reply)
      await signOut(services.guard, request.cookies[SESSION_COOKIE] ?? '')
      setSessionCookie(request, reply, undefined)
      return reply.redirect(`${wayToRoot(request.url)}admin/sign-in`, 303)
    },
  )
}

async function signOut({ sessions, endSession }: ConsoleGuard, secret: string): Promise<void> {
  const session = await sessions.find(secret)
  if (session === undefined) return
  await sessions.close(secret)
  const { userId } = session
  if (userId !== undefined) await endSession({ ...session, userId })
}

/** Shows the sign-in page, which returns to the requested page. */
export function signInPage(services: SignInServices): ShowSignIn {
  return (request, reply) => sendSignIn(services, { request, reply, next: request.url })
}

type Form = Readonly<Record<string, string | undefined>>

async function signIn(
  services: SignInServices,
  request: FastifyRequest<{ Body: Form | undefined }>,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const { guard } = services
  const form = request.body ?? {}
  if (!isOwnForm(request, form.form)) return foreignForm(services, request, reply)
  const refuse = (status: number, problem: string): FastifyReply =>
    sendSignIn(services, {
      request,
      reply: reply.code(status),
      problem,
      next: form.next,
      email: form.email,
    })
  const verdict = await judge(services, form, request)
  if (verdict.kind === 'limited') {
    reply.header('retry-after', verdict.seconds)
    return refuse(429, tooManyAttempts(verdict.seconds))
  }
  if (verdict.kind === 'refused') return refuse(verdict.status, verdict.reason)
  // A cookie from before the sign-in never becomes a session, because an attacker may know it.
  setSessionCookie(request, reply, await guard.sessions.open(verdict.session))
  return reply.redirect(wayToRoot(request.url) + pathBelowAdmin(form.next).slice(1), 303)
}

type Verdict =
  | { readonly kind: 'session'; readonly session: AdminSession }
  | { readonly kind: 'refused'; readonly status: number; readonly reason: string }
  | { readonly kind: 'limited'; readonly seconds: number }

async function judge(
  { guard, checkPassword }: SignInServices,
  form: Form,
  request: FastifyRequest,
): Promise<Verdict> {
  const { token = '', email = '', password = '', code = '' } = form
  const refused = (status: number, reason: string) => ({ kind: 'refused', status, reason }) as const
  if ([token, email, password, code].some(({ length }) => length > FIELD_LENGTH_MAX)) {
    return refused(400, 'That is too long.')
  }
  if (token !== '') {
    const verdict = await judgeAdminToken(guard, token, request.ip)
    if (verdict.kind === 'limited') return verdict
    if (!verdict.isRight) return refused(401, 'This is not the admin token.')
    const session = { name: TOKEN_NAME, tokenDigest: digestOf(token) }
    return { kind: 'session', session }
  }
  if (email === '' || password === '') {
    return refused(400, 'Enter an e-mail address and a password, or the admin token.')
  }
  const verdict = await checkPassword({ email, password, code: code.trim() }, request)
  if (verdict.kind !== 'administrator') return verdict
  const { kind: _kind, ...session } = verdict
  return { kind: 'session', session }
}

function foreignForm(
  services: SignInServices,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const problem = 'The form was too old or came from elsewhere. Please try again.'
  return sendSignIn(services, { request, reply: reply.code(403), problem })
}

interface SignInPage {
  readonly request: FastifyRequest
  readonly reply: FastifyReply
  readonly problem?: string
  readonly next?: string | undefined
  readonly email?: string | undefined
}

function sendSignIn({ guard, assets }: SignInServices, page: SignInPage): FastifyReply {
  const { request, reply } = page
  const root = wayToRoot(request.url)
  const secret = formSecret(request, reply)
  const next = pathBelowAdmin(page.next)
  const hidden = html`<input type="hidden" name="form" value="${secret}">
        <input type="hidden" name="next" value="${next}">`
  const main = html`
    <div class="sign-in card stack">
      <h1>Administration</h1>
      ${page.problem === undefined ? '' : html`<p class="notice bad" role="alert">${page.problem}</p>`}
      <form class="stack" method="post" action="${root}admin/sign-in">
        ${hidden}
        <label class="field"><span>Email address of an administrator</span>
          <input type="email" name="email" autocomplete="username" maxlength="${FIELD_LENGTH_MAX}" value="${page.email}" required></label>
        <label class="field"><span>Password</span>
          <input type="password" name="password" autocomplete="current-password" maxlength="${FIELD_LENGTH_MAX}" required></label>
        <label class="field"><span>Code of the second factor, if any</span>
          <input type="text" name="code" inputmode="numeric" autocomplete="one-time-code" maxlength="10"></label>
        <button class="primary">Sign in</button>
      </form>
      ${guard.adminToken === '' ? '' : tokenForm(root, hidden)}
    </div>`
  return setPageHeaders(reply, { usesMicrophone: false })
    .header('cache-control', 'no-store')
    .type('text/html; charset=utf-8')
    .send(adminDocument({ title: 'Sign in', root, assets, main }))
}

function tokenForm(root: string, hidden: Html): Html {
  return html`<form class="stack or" method="post" action="${root}admin/sign-in">
        ${hidden}
        <label class="field"><span>Or the admin token</span>
          <input type="password" name="token" autocomplete="off" maxlength="${FIELD_LENGTH_MAX}" required>
          <small class="muted">The value of MILLRACE_ADMIN_TOKEN, printed at the start.</small></label>
        <button>Sign in with the token</button>
      </form>`
}

/** The path after signing in: never on another site, and never one that only a form may request. */
function pathBelowAdmin(path: string | undefined): string {
  const isOurs = path !== undefined && /^\/admin(\/(queues|console)(\/[\w./?=&%-]*)?)?$/.test(path)
  return isOurs ? path : '/admin'
}
