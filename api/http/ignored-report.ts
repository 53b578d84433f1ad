import type { FastifyReply, FastifyRequest } from 'fastify'

import { ignoredFieldsOf } from './ignored-fields.ts'

const HEADER = 'x-millrace-ignored-parameters'

/** Reports fields that have no effect on the answer to a request. */
export function reportIgnored(request: FastifyRequest, names: Iterable<string>): void {
  for (const name of names) request.context.ignoredFields.add(name)
}

/** All reported fields of a request. */
export function reportedFields(request: FastifyRequest): readonly string[] {
  return [...new Set([...ignoredFieldsOf(request.body), ...request.context.ignoredFields])]
}

/** Lists the reported fields in the headers, just before these are sent. */
export function writeIgnoredHeader(reply: FastifyReply): void {
  const names = reportedFields(reply.request)
  if (names.length > 0) reply.header(HEADER, names.join(', '))
}
