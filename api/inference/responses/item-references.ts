import type { FastifyRequest } from 'fastify'

import type { InferenceServices } from '#api/inference/services.ts'
import type { StoredItem } from '#api/stored/conversation-store.ts'
import { contentsReaderOf } from '#api/v1/request-context.ts'
import { failure, type ServiceError } from '#shared/errors.ts'

import { type InputField, notStored } from './responses-input.ts'
import { responseOfItem } from './responses-output.ts'

type Items = Exclude<InputField, string>

/**
 * Replaces references in the input by the items of the organization's stored responses, and returns
 * the number of characters read. References to items in `earlier` are dropped. Throws for an
 * unknown id and for a repeated one, which would multiply a stored answer in a small request.
 */
export async function withReferences(
  { stored }: InferenceServices,
  request: FastifyRequest,
  { input, earlier }: { readonly input: InputField; readonly earlier: readonly StoredItem[] },
): Promise<{ readonly input: InputField; readonly bytes: number }> {
  if (typeof input === 'string') return { input, bytes: 0 }
  const ids = input.flatMap((item) => (item.type === 'item_reference' ? [item.id] : []))
  if (ids.length === 0) return { input, bytes: 0 }
  const seen = new Set<string>()
  for (const [index, item] of input.entries()) {
    if (item.type !== 'item_reference') continue
    if (seen.has(item.id)) throw repeated(item.id, index)
    seen.add(item.id)
  }
  const present = new Set(earlier.map(({ id }) => id))
  const responses = ids.filter((id) => !present.has(id)).flatMap((id) => responseOfItem(id) ?? [])
  const read = await stored?.answers.outputs(contentsReaderOf(request), [...new Set(responses)])
  const found = new Map(read?.contents.map((item) => [item.id, item]))
  const items = input.flatMap((item, index) => {
    if (item.type !== 'item_reference') return [item]
    if (present.has(item.id)) return []
    const referred = found.get(item.id)
    if (referred === undefined) throw notStored(item.id, index)
    return [referred as unknown as Items[number]]
  })
  return { input: items, bytes: read?.bytes ?? 0 }
}

function repeated(id: string, index: number): ServiceError {
  return failure.invalidRequest(
    `Duplicate item found with id ${id.slice(0, 100)}. Remove duplicate items from your input and try again.`,
    { param: `input[${index}].id`, code: 'invalid_value' },
  )
}
