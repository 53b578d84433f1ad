import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'

import type { AssetFiles } from '#api/pages/asset-files.ts'
import { type Html, html, wayToRoot } from '#api/pages/html.ts'

import { type Administrator, administratorOf, type ConsoleRole, requireRole } from './access.ts'
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
      requireRole(administrator, page.role ?? 'viewer')
      const root = wayToRoot(request.url)
      const text = adminDocument({
        title: page.title,
        root,
        assets,
        script: 'console.js',
        bar: sessionBar(request, reply, root),
        navigation: navigation(root, page.name),
        main: html`
    <div class="stack" id="page" data-page="${page.name}" data-role="${administrator.role}">
      <h1>${page.title}</h1>
      <p class="muted" role="status">Loading …</p>
      <noscript><p class="notice bad">This page needs JavaScript. The overview works without it.</p></noscript>
    </div>`,
      })
      return reply.type('text/html; charset=utf-8').send(text)
    })
  }
}

/** The links to all pages. */
export function navigation(root: string, current: string): Html {
  const link = (path: string, title: string, isCurrent: boolean): Html =>
    isCurrent
      ? html`<a href="${root}${path}" aria-current="page">${title}</a>`
      : html`<a href="${root}${path}">${title}</a>`
  return html`<nav class="side" aria-label="Console">
      ${link('admin', 'Overview', current === 'overview')}
      ${PAGES.map(({ name, title }) => link(`admin/console/${name}`, title, name === current))}
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
