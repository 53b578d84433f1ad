import { randomUUID } from 'node:crypto'

import fastify from 'fastify'
import { Pool } from 'pg'

// A bare Fastify whose routes run one transaction or statement each, in a process of its own.
// Arguments: the database's address, and what `GET /answer` answers.
const [url = '', answer = '{}'] = process.argv.slice(2)
const pool = new Pool({ connectionString: url, max: 20 })
await pool.query(
  'create table if not exists bare (id int primary key, used int not null default 0)',
)
await pool.query(
  'insert into bare select n, 0 from generate_series(1, 64) n on conflict do nothing',
)
const INSERTION = `insert into bare_activities (organization_id, id, type, actor_id, object_id,
  published, created_at, activity) values ($1, $2, $3, $4, $5, $6, $7, $8)`

const app = fastify()
app.post<{ Body: { readonly id: number } }>('/touch', async (request) => {
  const client = await pool.connect()
  try {
    await client.query('begin')
    const { id } = request.body
    await client.query('select used from bare where id = $1 for update', [id])
    const { rows } = await client.query(
      'update bare set used = used + 1 where id = $1 returning used',
      [id],
    )
    await client.query('commit')
    return rows[0]
  } finally {
    client.release()
  }
})
const read = { name: 'read', text: 'select used from bare where id = $1', values: [1] }
const stored: unknown = JSON.parse(answer)
app.get('/answer', async () => {
  await pool.query(read)
  return stored
})
app.post<{ Body: Readonly<Record<string, string>> }>('/activities', async (request, reply) => {
  const { id = randomUUID(), type, actor, object } = request.body
  const now = new Date()
  const activity = { ...request.body, id, published: now }
  const values = ['org-one', id, type, actor, object, now, now, JSON.stringify(activity)]
  await pool.query({ name: 'insert', text: INSERTION, values })
  return reply.code(201).send(activity)
})
process.stdout.write(`ready ${await app.listen({ host: '127.0.0.1', port: 0 })}\n`)
