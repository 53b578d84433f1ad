import type { Clock } from '#shared/clock.ts'
import { MAIL_KINDS, type MailerConfig, type MailKind } from '#shared/config/auth-mail.ts'
import type { Logger } from '#shared/logger.ts'
import type { GuardedFetch } from '#shared/net/guarded-fetch.ts'

import { BUILT_IN_TEMPLATES } from './built-in-templates.ts'

/** The source of the HTML of mails. */
export interface Templates {
  /** The configured template, or the built-in one when it cannot be fetched. */
  get(kind: MailKind): Promise<string>
}

/** Fetches templates by URL and caches them for a while, including failures. */
export function createTemplates(options: {
  readonly config: Pick<MailerConfig, 'templates' | 'templateCacheSeconds'>
  readonly siteUrl: string
  readonly fetch: GuardedFetch
  readonly clock: Clock
  readonly log: Logger
}): Templates {
  const { config, siteUrl, fetch, clock, log } = options
  const kept = new Map<MailKind, { readonly html: Promise<string>; readonly untilMs: number }>()
  const load = async (kind: MailKind): Promise<string> => {
    try {
      const reply = await fetch({
        url: templateUrl(config.templates[kind], siteUrl),
        headers: { accept: 'text/html, text/plain;q=0.9, */*;q=0.1' },
      })
      if (reply.status === 200 && reply.text.trim() !== '') return reply.text
      log.warn({ operation: 'mail.template', kind, status: reply.status }, 'template unavailable')
    } catch (error) {
      const reason = error instanceof Error ? error.message : 'unknown'
      log.warn({ operation: 'mail.template', kind, reason }, 'template unavailable')
    }
    return BUILT_IN_TEMPLATES[kind]
  }
  return {
    get(kind) {
      if (!MAIL_KINDS.includes(kind) || config.templates[kind] === '') {
        return Promise.resolve(BUILT_IN_TEMPLATES[kind])
      }
      const found = kept.get(kind)
      if (found !== undefined && clock.now() < found.untilMs) return found.html
      const html = load(kind)
      kept.set(kind, { html, untilMs: clock.now() + config.templateCacheSeconds * 1000 })
      return html
    },
  }
}

function templateUrl(setting: string, siteUrl: string): string {
  if (/^https?:\/\//i.test(setting)) return setting
  return `${siteUrl.replace(/\/+$/, '')}/${setting.replace(/^\/+/, '')}`
}
