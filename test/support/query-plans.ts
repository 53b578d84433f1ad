import type { Pool } from 'pg'

/** A step of a query's plan, as in `explain (format json)`. */
export interface PlanNode {
  readonly 'Node Type': string
  readonly 'Relation Name'?: string
  readonly 'Index Name'?: string
  readonly 'Index Cond'?: string
  readonly 'Sort Key'?: readonly string[]
  readonly Plans?: readonly PlanNode[]
}

/** How one statement would be carried out. */
export interface StatementPlan {
  readonly text: string
  readonly nodes: readonly PlanNode[]
}

/**
 * The plans of the statements that `work` sends by the pool itself, as they would be among very
 * many rows: a table is read from end to end only where no index serves.
 */
export async function plansOf(pool: Pool, work: () => Promise<unknown>): Promise<StatementPlan[]> {
  const sent: Sent[] = []
  const query = pool.query.bind(pool) as (...given: unknown[]) => unknown
  const listening = (statement: string | { readonly text: string }, values?: unknown[]) => {
    sent.push({ text: typeof statement === 'string' ? statement : statement.text, values })
    return query(statement, values)
  }
  pool.query = listening as typeof pool.query
  try {
    await work()
  } finally {
    pool.query = query as typeof pool.query
  }
  return explain(pool, sent)
}

interface Sent {
  readonly text: string
  readonly values: unknown[] | undefined
}

async function explain(pool: Pool, sent: readonly Sent[]): Promise<StatementPlan[]> {
  const client = await pool.connect()
  const plans: StatementPlan[] = []
  try {
    // Few rows are never worth a bitmap, and their plans are harder to read.
    await client.query('begin; set local enable_seqscan = off; set local enable_bitmapscan = off')
    for (const { text, values } of sent) {
      const { rows } = await client.query(`explain (format json) ${text}`, values)
      plans.push({ text, nodes: flatten(rows[0]['QUERY PLAN'][0].Plan) })
    }
    await client.query('rollback')
  } finally {
    client.release()
  }
  return plans
}

function flatten(node: PlanNode): PlanNode[] {
  return [node, ...(node.Plans ?? []).flatMap(flatten)]
}
