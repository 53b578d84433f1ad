const NULLABLE_TEXT = { type: ['string', 'null'] }

/** The error body under `/v1` and for unknown paths. */
export const ERROR_BODY = {
  type: 'object',
  required: ['error'],
  properties: {
    error: {
      type: 'object',
      required: ['message', 'type', 'param', 'code'],
      properties: {
        message: { type: 'string' },
        type: { type: 'string' },
        param: { ...NULLABLE_TEXT, description: 'The field that caused the error.' },
        code: NULLABLE_TEXT,
      },
    },
    detail: {
      type: 'string',
      description: 'The field and the message, on routes that Voyage and Jina clients call.',
    },
  },
}

/** The error bodies of the user server. */
export const USER_SERVER_ERROR = {
  anyOf: [
    {
      type: 'object',
      description: 'The usual format.',
      required: ['code', 'error_code', 'msg'],
      properties: {
        code: { type: 'integer' },
        error_code: { type: 'string' },
        msg: { type: 'string' },
      },
    },
    {
      type: 'object',
      description: 'The format since `X-Supabase-Api-Version: 2024-01-01`.',
      required: ['code', 'message'],
      properties: { code: { type: 'string' }, message: { type: 'string' } },
    },
    // Errors that occur before the surface is known.
    { $ref: '#/components/schemas/Error' },
  ],
}
