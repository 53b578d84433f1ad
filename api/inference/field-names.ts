import { fromWireError, ServiceError, toWireError } from '#shared/errors.ts'

/**
 * The fields of a request by the names that workers use, where the dialect of the request has other
 * names. A name with an index, such as `input[3]`, is for that item alone.
 */
export type FieldNames = Readonly<Partial<Record<string, string>>>

/** The dialect of Text Embeddings Inference. */
export const INPUTS: FieldNames = { input: 'inputs', input_type: 'prompt_name' }

/** The Responses API. */
export const RESPONSE_FIELDS: FieldNames = { messages: 'input' }

/** Runs a part of a request. Errors thrown by it name the fields as the request does. */
export async function withFieldNames<T>(names: FieldNames, run: () => Promise<T>): Promise<T> {
  try {
    return await run()
  } catch (error) {
    throw renamed(error, names)
  }
}

function renamed(error: unknown, names: FieldNames): unknown {
  if (!(error instanceof ServiceError) || error.param === undefined) return error
  // A path such as `input[3].image` begins with its field.
  const [field = ''] = error.param.split(/[.[]/, 1)
  const name = names[field]
  if (name === undefined) return error
  const param = names[error.param] ?? name + error.param.slice(field.length)
  const message = error.message.replaceAll(`'${error.param}'`, `'${param}'`)
  return fromWireError({ ...toWireError(error), message, param })
}
