import { failure, type ServiceError } from '#shared/errors.ts'

import { optionalString } from './field-schemas.ts'

/** The fields of a file in a message. Only those with text are read. */
export const FILE_FIELDS = {
  filename: optionalString({ maxLength: 1024 }),
  file_data: optionalString({
    description: 'A text as a data URL, such as `data:text/plain;base64,…`.',
  }),
  file_id: optionalString({ description: 'Refused: send the text as `file_data`.' }),
}

/** The most characters before the data of a URL. */
const HEAD_CHARS_MAX = 200
const TEXT_TYPES = /^data:(text\/|application\/([\w.-]+\+)?(json|xml|x?-?yaml|javascript)\b)/i

/** A file as text for the model, after its name. Throws for files that are not text. */
export function fileText(
  {
    filename,
    file_data: url,
  }: { readonly filename?: string | null; readonly file_data?: string | null },
  path: string,
): string {
  const comma = url?.slice(0, HEAD_CHARS_MAX).indexOf(',') ?? -1
  const head = url?.slice(0, Math.max(comma, 0)) ?? ''
  if (!url || !TEXT_TYPES.test(head) || !head.endsWith(';base64')) throw notText(path)
  const bytes = Buffer.from(url.slice(comma + 1), 'base64')
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
    return `${filename ? `${filename}\n` : ''}${text}\n`
  } catch {
    throw notText(path)
  }
}

function notText(path: string): ServiceError {
  const param = `${path}.file_data`
  return failure.invalidRequest(
    `Invalid '${param}'. Expected a data URL of UTF-8 text, such as \`data:text/plain;base64,…\`. Send the text of a PDF, or its pages as images.`,
    { param, code: 'invalid_value' },
  )
}
