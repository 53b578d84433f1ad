import { it } from 'vitest'
import { sql } from 'drizzle-orm'
import argon2 from 'argon2'
import { startServer } from '/work/main/test/integration/auth/support/server.ts'
import { signedInUser, createUser, PASSWORD } from '/work/main/test/integration/auth/support/people.ts'
import { fastify } from 'fastify'
it('perf', async () => {
  const server = await startServer({ env: { MILLRACE_ARGON2_MEMORY_KIB: '19456' } })
  const N = 16, MS = 4000
  const tokens = []
  for (let i = 0; i < N; i++) tokens.push((await signedInUser(server)).refresh_token)
  const bare = fastify()
  bare.post('/x', async () => { await server.database.db.transaction(async (tx) => { await tx.execute(sql`select id from users limit 1`) }); return { ok: true } })
  const url = await server.app.listen({ port: 0, host: '127.0.0.1' }); const burl = await bare.listen({ port: 0, host: '127.0.0.1' })
  const run = async (f: (i: number) => Promise<void>) => { let n = 0; const end = performance.now() + MS; await Promise.all(Array.from({ length: N }, async (_, i) => { while (performance.now() < end) { await f(i); n++ } })); return n / MS * 1000 }
  console.log('bare/s', await run(async () => { await (await fetch(burl + '/x', { method: 'POST' })).json() }))
  console.log('refresh/s', await run(async (i) => { const r = await (await fetch(url + '/token?grant_type=refresh_token', { method: 'POST', body: JSON.stringify({ refresh_token: tokens[i] }) })).json() as any; tokens[i] = r.refresh_token; if (!r.refresh_token) throw new Error(JSON.stringify(r)) }))
  const { email } = await createUser(server)
  const h = await argon2.hash(PASSWORD, { memoryCost: 19456, timeCost: 2, parallelism: 1 })
  console.log('argon2 verify/s', await run(async () => { await argon2.verify(h, PASSWORD) }))
  console.log('signin/s', await run(async () => { const r = await fetch(url + '/token?grant_type=password', { method: 'POST', body: JSON.stringify({ email, password: PASSWORD }) }); if (r.status !== 200) throw new Error(await r.text()); await r.json() }))
  await bare.close(); await server.close()
}, 60000)
