import { AUDIT_SCOPES, listAudit } from '#api/auth/audit/audit-log.ts'
import { type AdminRequest, type Answer, json } from '#api/auth/context.ts'
import { invalid } from '#api/auth/errors.ts'
import type { PageQuery, Parsed } from '#api/auth/schemas.ts'
import type { AuthServices } from '#api/auth/services.ts'

import { pageHeaders, parsePage } from './pages.ts'

/** One page of the audit log, newest first. */
export async function adminAudit(
  services: AuthServices,
  _request: AdminRequest,
  query: Parsed<typeof PageQuery>,
): Promise<Answer> {
  const page = parsePage(query)
  const { entries, total } = await listAudit(services.store, {
    offset: page.offset,
    limit: page.size,
    search: parseSearch(query.query),
  })
  const body = entries.map((entry) => ({
    id: entry.id,
    payload: entry.payload,
    created_at: entry.createdAt.toISOString(),
    ip_address: entry.ipAddress,
  }))
  return json(body, pageHeaders('/admin/audit', query, { page, total }))
}

function parseSearch(query: string | undefined): Parameters<typeof listAudit>[1]['search'] {
  if (query === undefined || query === '') return undefined
  const [, name, text = ''] = /^([^:]*):(.*)$/s.exec(query) ?? []
  const scope = AUDIT_SCOPES.find((known) => known === name)
  if (scope === undefined) {
    throw invalid(`Invalid query scope: use one of ${AUDIT_SCOPES.join(', ')}`, 'query')
  }
  return { scope, text }
}
