const NULLABLE_TEXT = { type: ['string', 'null'] }

/** The body of every error below `/v1`, and of what no surface answers. */
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
        param: { ...NULLABLE_TEXT, description: 'The field that is at fault.' },
        code: NULLABLE_TEXT,
      },
    },
  },
}

/** The bodies of the user server's errors. */
export const USER_SERVER_ERROR = {
  anyOf: [
    {
      type: 'object',
      description: 'The usual form.',
      required: ['code', 'error_code', 'msg'],
      properties: {
        code: { type: 'integer' },
        error_code: { type: 'string' },
        msg: { type: 'string' },
      },
    },
    {
      type: 'object',
      description: 'From `X-Supabase-Api-Version: 2024-01-01` on.',
      required: ['code', 'message'],
      properties: { code: { type: 'string' }, message: { type: 'string' } },
    },
    // What is refused before it is known whose path it is.
    { $ref: '#/components/schemas/Error' },
  ],
}
