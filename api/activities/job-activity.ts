import type { UsageRow } from '#shared/db/schema/usage.ts'

import { ownActivity } from './own-activity.ts'
import type { OwnActivity } from './recording.ts'

/** The activity of an ended job; recorded once, however often it is reported. */
export function jobActivity(row: UsageRow): OwnActivity {
  return ownActivity({
    id: `act_${row.jobId}${row.outcome === 'finished' ? '' : `_${row.outcome}`}`,
    type: 'Create',
    event: `job.${row.outcome}`,
    organizationId: row.organizationId,
    actor: actorOf(row),
    object: {
      id: `job:${row.jobId}`,
      type: 'Job',
      kind: row.kind,
      model: row.modelId,
      prompt_tokens: row.promptTokens,
      completion_tokens: row.completionTokens,
      cached_tokens: row.cachedTokens,
    },
    requestId: row.requestId ?? undefined,
    atMs: row.createdAt.getTime(),
  })
}

function actorOf({ userId, apiKeyId }: UsageRow): string {
  if (userId !== null) return `user:${userId}`
  return apiKeyId === null ? 'service:millrace' : `key:${apiKeyId}`
}
