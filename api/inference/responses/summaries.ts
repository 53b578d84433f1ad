import { invalidValue } from '#api/inference/field-schemas.ts'
import { field, parseRecord } from '#shared/json.ts'
import type { ContentCipher } from '#shared/queue/content-cipher.ts'
import { openText, sealText } from '#shared/stored-content.ts'

/** The text of a compaction item. Throws `invalidRequest` naming the field if it cannot be read. */
export type OpenSummary = (content: string, param: string) => string

/** The content of a compaction item: encrypted where the installation has a key. */
export function sealSummary(
  summary: string,
  cipher: ContentCipher | undefined,
  organizationId: string,
): string {
  return sealText(JSON.stringify({ summary }), cipher, contextOf(organizationId))
}

/** Opens the compaction items of one organization; those of others are refused. */
export function summaryOpener(
  cipher: ContentCipher | undefined,
  organizationId: string,
): OpenSummary {
  return (content, param) => {
    const text = readText(() => openText(content, cipher, contextOf(organizationId)))
    // Clear text is returned unchanged; it is written only without a key.
    const summary = cipher !== undefined && text === content ? undefined : summaryIn(text)
    if (summary !== undefined) return summary
    throw invalidValue(param, 'this server has written no such compaction for your organization.')
  }
}

function readText(open: () => string): string | undefined {
  try {
    return open()
  } catch {
    // The content was encrypted with another key or for another organization.
    return undefined
  }
}

function summaryIn(text: string | undefined): string | undefined {
  const summary = field(parseRecord(text ?? ''), 'summary')
  return typeof summary === 'string' ? summary : undefined
}

function contextOf(organizationId: string): string {
  return `compaction ${organizationId}`
}
