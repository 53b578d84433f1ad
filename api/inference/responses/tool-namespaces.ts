import { TOOLS_MAX } from '#api/inference/chat/chat-tools.ts'
import { invalidValue } from '#api/inference/field-schemas.ts'

import type { CalledTool, ToolField } from './responses-body.ts'
import { offeredName } from './responses-input.ts'

/** A tool of a namespace, by its own name. */
interface NamespacedTool {
  readonly namespace: string
  readonly name: string
}

/** A tool as the model sees it. */
interface OfferedTool {
  /** The tool under the name that the model reads and writes. */
  readonly tool: CalledTool
  /** Its place in the request. */
  readonly path: string
  readonly origin?: NamespacedTool
}

/** All tools of a request, including those of namespaces. */
export function offeredTools(tools: readonly ToolField[]): readonly OfferedTool[] {
  const offered = tools.flatMap((tool, index): OfferedTool[] => {
    const path = `tools[${index}]`
    if (tool.type !== 'namespace') return [{ tool, path }]
    return tool.tools.map((inner, place) => {
      const origin = { namespace: tool.name, name: inner.name }
      const named = { ...inner, name: offeredName(origin) }
      return { tool: named, path: `${path}.tools[${place}]`, origin }
    })
  })
  if (offered.length <= TOOLS_MAX) return offered
  throw invalidValue('tools', `it may have at most ${TOOLS_MAX} tools, with those of namespaces.`)
}
