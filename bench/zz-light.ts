import { fastify } from 'fastify'
import { Readable } from 'node:stream'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import { PassingBytes, passThrough } from '#api/http/passing-bytes.ts'
import { mkdtemp } from 'node:fs/promises'
const store = openDirectoryStore(await mkdtemp('/tmp/zz-'))
const app = fastify()
app.get('/x', async (_r, reply) => { const { body } = await store.get('a'); return reply.header('content-length', 26).send(passThrough(body, new PassingBytes())) })
const url = await app.listen({ port: 0 })
for (let i = 0; i < 3; i++) {
  let t = performance.now()
  await store.put('a', passThrough(Readable.from([Buffer.from('{"text":"a"}\n{"text":"b"}\n')]), new PassingBytes()))
  const p = performance.now() - t; t = performance.now()
  const text = await (await fetch(url + '/x')).text()
  console.log('put', p.toFixed(0), 'get', (performance.now() - t).toFixed(0), text.length)
}
const t = performance.now(); await app.close(); console.log('close', (performance.now() - t).toFixed(0)); process.exit(0)
