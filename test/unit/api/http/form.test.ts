import { once } from 'node:events'
import { setImmediate as nextTurn } from 'node:timers/promises'

import multipart from '@fastify/multipart'
import Fastify, { type FastifyInstance } from 'fastify'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'

import { type FormFile, readForm } from '#api/http/form.ts'
import { addRequestContext } from '#api/v1/request-context.ts'
import { failure, ServiceError } from '#shared/errors.ts'

const BOUNDARY = 'b0undary'
const HEADERS = { 'content-type': `multipart/form-data; boundary=${BOUNDARY}` }
const part = (name: string, value: string, more = '') =>
  `--${BOUNDARY}\r\ncontent-disposition: form-data; name="${name}"${more}\r\n\r\n${value}\r\n`
const file = (name: string, value = 'x') => part(name, value, '; filename="a"')
const form = (...parts: string[]) => `${parts.join('')}--${BOUNDARY}--\r\n`

describe('a form', () => {
  let app: FastifyInstance
  let receive: (file: FormFile, name: string) => Promise<string>
  beforeEach(async () => {
    receive = readText
    app = Fastify()
    addRequestContext(app)
    await app.register(multipart)
    app.setErrorHandler((error, _request, reply) => {
      const status = error instanceof ServiceError ? 400 : 413
      return reply.code(status).send({ param: (error as { param?: string }).param })
    })
    app.post('/', (request) =>
      readForm(request, {
        fields: ['title'],
        lists: ['tags'],
        files: ['file', 'mask'],
        bytesMax: 10_000_000,
        tooLarge: () => failure.invalidRequest('too large'),
        receive: (received, name) => receive(received, name),
      }),
    )
  })
  afterEach(() => app.close())
  const post = (payload: string) =>
    app.inject({ method: 'POST', url: '/', headers: HEADERS, payload })

  it('names its files without folders, even if the name is encoded as in a mail', async () => {
    receive = async ({ filename, stream }) => {
      stream.resume()
      return filename
    }
    const word = `=?utf-8?B?${Buffer.from('ä?>ü.mp3').toString('base64')}?=`
    expect(word).toContain('/')
    const answer = await post(
      form(
        part('file', 'x', `; filename="${word}"; filename*=utf-8''%C3%A4`),
        part('mask', 'x', '; filename="folder/ü.png"'),
      ),
    )
    expect(answer.json().files).toEqual({ file: 'ä?>ü.mp3', mask: 'ü.png' })
  })

  it('may have its parts in any order', async () => {
    const long = 'b'.repeat(300_000)
    const parts = [file('mask', long), part('title', 't'), file('file', ''), part('tags[]', '1')]
    expect((await post(form(...parts))).json()).toEqual({
      fields: { title: 't', tags: ['1'] },
      files: { mask: long, file: '' },
    })
  })

  it.each([
    ['a second file of the name', file('file'), 400, 'file'],
    ['an unknown field', part('other', 'x'), 400, 'other'],
    ['more parts than a form may have', part('tags', 'x').repeat(50), 413, undefined],
  ])(
    'is refused at %s, however long a file before it takes',
    async (_title, behind, ...refusal) => {
      let isAborted = false
      receive = async ({ stream, signal }) => {
        stream.resume()
        await once(signal, 'abort')
        isAborted = true
        throw signal.reason
      }
      const answer = await post(form(file('file'), behind, file('mask').repeat(1000)))
      expect([answer.statusCode, answer.json().param]).toEqual(refusal)
      expect(isAborted).toBe(true)
    },
  )

  it('is refused only after the received part has been read to its end', async () => {
    let isOver = false
    receive = async ({ stream, signal }) => {
      stream.resume()
      await once(signal, 'abort')
      await nextTurn()
      isOver = true
      return 'received'
    }
    expect((await post(form(file('file'), file('file')))).statusCode).toBe(400)
    expect(isOver).toBe(true)
  })

  it('fails at once with the error of a receiver, though more of it is to come', async () => {
    receive = async ({ stream }, name) => {
      if (name === 'mask') throw failure.invalidRequest('no', { param: 'mask' })
      return readText({ stream })
    }
    const answer = await post(form(file('mask', 'y'.repeat(500_000)), file('file')))
    expect([answer.statusCode, answer.json().param]).toEqual([400, 'mask'])
  })
})

async function readText({ stream }: Pick<FormFile, 'stream'>): Promise<string> {
  let text = ''
  for await (const chunk of stream) text += chunk
  return text
}
