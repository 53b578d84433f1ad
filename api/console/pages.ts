import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'

import type { AssetFiles } from '#api/pages/asset-files.ts'
import { type Html, html, wayToRoot } from '#api/pages/html.ts'

import { type Administrator, administratorOf, type ConsoleRole, hasRole } from './access.ts'
import { formSecret } from './cookies.ts'
import { adminDocument } from './document.ts'

/** A page that its script fills from the console's API: `assets/page-<name>.js`. */
interface ConsolePage {
  readonly name: string
  readonly title: string
  /** The role that may read it; viewers when absent. */
  readonly role?: ConsoleRole
}

const PAGES: readonly ConsolePage[] = [
  { name: 'series', title: 'Charts' },
  { name: 'queues', title: 'Queues' },
  { name: 'models', title: 'Models' },
  { name: 'organizations', title: 'Organizations' },
  { name: 'users', title: 'Users' },
  { name: 'keys', title: 'API keys' },
  { name: 'usage', title: 'Usage' },
  { name: 'jobs', title: 'Jobs' },
  { name: 'batches', title: 'Batches' },
  { name: 'fine-tuning', title: 'Fine-tuning' },
  { name: 'files', title: 'Files' },
  { name: 'webhooks', title: 'Webhooks' },
  { name: 'activities', title: 'Activities' },
  { name: 'audit', title: 'Audit log', role: 'administrator' },
]

/** Registers the pages below `/console`; the surrounding scope authenticates. */
export function registerPages(app: FastifyInstance, assets: AssetFiles): void {
  for (const page of PAGES) {
    app.get(`/console/${page.name}`, { schema: { hide: true } }, async (request, reply) => {
      const administrator = administratorOf(request)
      const isAllowed = mayRead(administrator, page)
      const root = wayToRoot(request.url)
      const text = adminDocument({
        title: page.title,
        root,
        assets,
        ...(isAllowed && { script: 'console.js' }),
        bar: sessionBar(request, reply, root),
        navigation: navigation(administrator, root, page.name),
        main: isAllowed ? loadingPage(administrator, page) : forbiddenPage(administrator, page),
      })
      const status = isAllowed ? 200 : 403
      return reply.code(status).type('text/html; charset=utf-8').send(text)
    })
  }
}

function mayRead(administrator: Administrator, { role = 'viewer' }: ConsolePage): boolean {
  return hasRole(administrator, role)
}

function loadingPage({ role }: Administrator, { name, title }: ConsolePage): Html {
  return html`
    <div class="stack" id="page" data-page="${name}" data-role="${role}">
      <h1>${title}</h1>
      <p class="muted" role="status">Loading …</p>
      <noscript><p class="notice bad">This page needs JavaScript. The overview works without it.</p></noscript>
    </div>`
}

function forbiddenPage({ role }: Administrator, page: ConsolePage): Html {
  return html`
    <div class="stack">
      <h1>${page.title}</h1>
      <p class="notice bad">This page needs the console role ${page.role}; yours is ${role}.</p>
    </div>`
}

/** The links to all pages that the administrator may read. */
export function navigation(administrator: Administrator, root: string, current: string): Html {
  const pages = PAGES.filter((page) => mayRead(administrator, page))
  const link = (path: string, title: string, isCurrent: boolean): Html =>
    isCurrent
      ? html`<a href="${root}${path}" aria-current="page">${title}</a>`
      : html`<a href="${root}${path}">${title}</a>`
  return html`<nav class="side" aria-label="Console">
      ${link('admin', 'Overview', current === 'overview')}
      ${pages.map(({ name, title }) => link(`admin/console/${name}`, title, name === current))}
      ${link('admin/queues', 'Bull Board', false)}
    </nav>`
}

/** The links out of the console, the signed-in name, and the form that signs out. */
export function sessionBar(request: FastifyRequest, reply: FastifyReply, root: string): Html {
  const administrator = administratorOf(request)
  return html`<a href="${root}">Playground</a> <a href="${root}docs">API</a> ${signOut(administrator, { root, secret: formSecret(request, reply) })}`
}

function signOut(
  { name, role, credential }: Administrator,
  form: { readonly root: string; readonly secret: string },
): Html {
  // Pages that a header authenticates have no session to end, but their forms need the token.
  if (credential === 'header') return html`<input type="hidden" name="form" value="${form.secret}">`
  return html`<form method="post" action="${form.root}admin/sign-out">
        <input type="hidden" name="form" value="${form.secret}">
        <span class="who small muted">${name} (${role})</span>
        <button class="compact" title="Signed in: ${name}">Sign out</button>
      </form>`
}
