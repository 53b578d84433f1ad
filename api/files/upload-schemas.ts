import { Type } from '#shared/schema-types.ts'
import { choice, nullable, ofType } from '#shared/schemas.ts'

import { EXPIRES_AFTER } from './expiry.ts'
import { PURPOSES } from './json-lines.ts'
import { FILE } from './routes.ts'
import { PARTS_MAX } from './upload-store.ts'

const TAGS = ['Files']
const UPLOAD_ID = Type.Object({ upload_id: Type.String({ minLength: 1, maxLength: 200 }) })
const UPLOAD = Type.Object({
  id: Type.String(),
  object: Type.Literal('upload'),
  bytes: Type.Integer(),
  created_at: Type.Integer({ description: 'A time in Unix seconds.' }),
  filename: Type.String(),
  purpose: Type.String(),
  status: choice(['pending', 'completed', 'cancelled']),
  expires_at: Type.Integer({ description: 'A time in Unix seconds.' }),
  file: nullable(FILE),
})

/** `POST /v1/uploads`. */
export const CREATE_UPLOAD = {
  tags: TAGS,
  summary: 'Create an upload of a file in parts',
  description:
    'The bytes of the file count against the quota of the organization as soon as the upload is created. An upload that is neither completed nor cancelled within an hour is deleted.',
  body: Type.Object(
    {
      filename: Type.String({ minLength: 1, maxLength: 4096 }),
      purpose: choice([...PURPOSES]),
      bytes: Type.Integer({ minimum: 1, description: 'The length of the whole file in bytes.' }),
      mime_type: Type.Optional(
        ofType(['string', 'null'], { maxLength: 255, description: 'Accepted, but not stored.' }),
      ),
      expires_after: Type.Optional(nullable(EXPIRES_AFTER)),
    },
    { additionalProperties: false },
  ),
  response: { 200: UPLOAD },
}

/** `POST /v1/uploads/{upload_id}/parts`. */
export const ADD_PART = {
  tags: TAGS,
  summary: 'Add a part to an upload',
  description:
    'Form data with `data`, at most 64 MiB. Parts may be sent in parallel and in any order.',
  params: UPLOAD_ID,
  consumes: ['multipart/form-data'],
  body: {
    type: 'object',
    required: ['data'],
    properties: { data: { type: 'string', format: 'binary' } },
  },
  response: {
    200: Type.Object({
      id: Type.String(),
      object: Type.Literal('upload.part'),
      created_at: Type.Integer({ description: 'A time in Unix seconds.' }),
      upload_id: Type.String(),
    }),
  },
}

/** `POST /v1/uploads/{upload_id}/complete`. */
export const COMPLETE_UPLOAD = {
  tags: TAGS,
  summary: 'Join the parts of an upload into a file',
  description:
    'Joins the parts in the order of `part_ids` and drops all others. Their total length must equal the `bytes` of the upload. Files for JSON-lines purposes are checked line by line.',
  params: UPLOAD_ID,
  body: Type.Object(
    {
      part_ids: Type.Array(Type.String({ maxLength: 200 }), { minItems: 1, maxItems: PARTS_MAX }),
      md5: Type.Optional(
        ofType(['string', 'null'], {
          pattern: '^[0-9a-fA-F]{32}$',
          description:
            'The digest of the whole file in hexadecimal digits; the upload is refused if it differs.',
        }),
      ),
    },
    { additionalProperties: false },
  ),
  response: { 200: UPLOAD },
}

/** `POST /v1/uploads/{upload_id}/cancel`. */
export const CANCEL_UPLOAD = {
  tags: TAGS,
  summary: 'Cancel an upload and delete its parts',
  params: UPLOAD_ID,
  response: { 200: UPLOAD },
}
