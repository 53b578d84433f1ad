import { createHash } from 'node:crypto'
import { extname } from 'node:path'

import type { FastifyPluginAsync } from 'fastify'

import { sendStored } from '#api/http/stored-bytes.ts'
import type { Clock } from '#shared/clock.ts'
import { failure, ServiceError } from '#shared/errors.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'
import type { UrlSigner } from '#shared/storage/signed-url.ts'

interface MediaServices {
  readonly store: ObjectStore
  readonly signer: UrlSigner
  readonly clock: Clock
}

interface SignedRequest {
  readonly Params: { readonly folder: string; readonly name: string }
  readonly Querystring: { readonly expires?: string; readonly signature?: string }
}

const ERROR = { description: 'An error in the usual format.', type: 'object' }

/** `GET /media/{folder}/{name}`: images by signed URL; no key is needed. */
export function mediaPlugin({ store, signer, clock }: MediaServices): FastifyPluginAsync {
  return async (app) => {
    app.get<SignedRequest>('/media/:folder/:name', {
      config: { scope: 'none' },
      schema: {
        operationId: 'retrieveMedia',
        summary: 'Download an image',
        description:
          'Serves an image at the signed URL that the answer to an image request contains.',
        tags: ['Media'],
        params: {
          type: 'object',
          required: ['folder', 'name'],
          properties: { folder: { type: 'string' }, name: { type: 'string' } },
        },
        querystring: {
          type: 'object',
          properties: {
            expires: { type: 'string', description: 'A time in Unix seconds.' },
            signature: { type: 'string' },
          },
        },
        response: {
          200: {
            description: 'The image.',
            content: Object.fromEntries(
              ['png', 'jpeg', 'webp'].map((format) => [
                `image/${format}`,
                { schema: { type: 'string', format: 'binary' } },
              ]),
            ),
          },
          206: {
            description: 'The part of the image that the `Range` header asks for.',
            type: 'string',
          },
          403: ERROR,
          404: ERROR,
          416: ERROR,
        },
      },
      handler: async (request, reply) => {
        const { folder, name } = request.params
        const key = `media/${folder}/${name}`
        const nowMs = clock.now()
        checkSignature(signer, { key, query: request.query, nowMs })
        const secondsLeft = Math.max(0, Number(request.query.expires) - Math.floor(nowMs / 1000))
        return sendStored(
          { request, reply },
          {
            store,
            key,
            // An image is immutable: it is written once, before its URL is issued.
            etag: `"${createHash('sha256').update(key).digest('hex')}"`,
            headers: {
              'content-type': `image/${extname(name).slice(1) || 'png'}`,
              'cache-control': `private, max-age=${secondsLeft}`,
            },
          },
        ).catch(asGone)
      },
    })
  }
}

function checkSignature(
  signer: UrlSigner,
  signed: { key: string; query: SignedRequest['Querystring']; nowMs: number },
): void {
  const { key, query, nowMs } = signed
  const path = `/v1/${key}`
  if (signer.verify(path, query, nowMs)) return
  if (signer.verify(path, query, 0)) {
    throw failure.accessDenied('This address has expired: it was valid for one hour.', {
      param: 'expires',
      code: 'url_expired',
    })
  }
  throw failure.accessDenied('The signature of this address is missing or wrong.', {
    param: 'signature',
    code: 'invalid_signature',
  })
}

function asGone(error: unknown): never {
  if (error instanceof ServiceError && error.kind === 'notFound') {
    throw failure.notFound('The image is no longer stored.', { code: 'media_not_found' })
  }
  throw error
}
