import type { PoolClient } from 'pg'

import type { Database } from '#shared/db/client.ts'

/** Calls `onStatement` with the text of every statement that the pool's connections send. */
export function watchStatements(
  { pool }: Pick<Database, 'pool'>,
  onStatement: (text: string) => void,
): void {
  const watched = new WeakSet<PoolClient>()
  pool.on('acquire', (client) => {
    if (watched.has(client)) return
    watched.add(client)
    const query = client.query.bind(client) as (...inputs: unknown[]) => unknown
    client.query = ((...inputs: unknown[]) => {
      const [first] = inputs
      onStatement(typeof first === 'string' ? first : (first as { text: string }).text)
      return query(...inputs)
    }) as typeof client.query
  })
}
