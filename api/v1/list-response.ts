/** A text or null. */
export const NULLABLE_STRING = { type: ['string', 'null'] }

/** The schema of a page of a list. */
export function listResponse(item: object, description = 'A list.'): object {
  return {
    type: 'object',
    description,
    required: ['object', 'data'],
    properties: {
      object: { const: 'list' },
      data: { type: 'array', items: item },
      first_id: NULLABLE_STRING,
      last_id: NULLABLE_STRING,
      has_more: { type: 'boolean' },
    },
  }
}

/** The schema of the answer to a deletion; `object` is its type on the wire. */
export function deletedResponse(object: string, description = 'It is gone.'): object {
  return {
    type: 'object',
    description,
    required: ['id', 'object', 'deleted'],
    properties: {
      id: { type: 'string' },
      object: { const: object },
      deleted: { const: true },
    },
  }
}
