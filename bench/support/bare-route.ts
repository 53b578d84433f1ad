import fastify from 'fastify'
import { Pool } from 'pg'

// A bare Fastify with one route that runs one transaction, in a process of its own. Argument: the
// database's address.
const [url = ''] = process.argv.slice(2)
const pool = new Pool({ connectionString: url, max: 20 })
await pool.query(
  'create table if not exists bare (id int primary key, used int not null default 0)',
)
await pool.query(
  'insert into bare select n, 0 from generate_series(1, 64) n on conflict do nothing',
)

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
process.stdout.write(`ready ${await app.listen({ host: '127.0.0.1', port: 0 })}\n`)
