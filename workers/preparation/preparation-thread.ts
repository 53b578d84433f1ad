import { parentPort } from 'node:worker_threads'

import { ServiceError } from '#shared/errors.ts'

import type { ConstraintPlan } from '../processors/constraint-plan.ts'
import { compileConstraint } from '../processors/constraint-plan.ts'
import { toGrammarData } from '../sampling/constraint/grammar-data.ts'
import type { ThreadReply } from './thread-pool.ts'
import { WorkBudget } from './work-budget.ts'

parentPort?.on('message', (plan: string) => {
  const reply = prepare(plan)
  parentPort?.postMessage(reply)
})

function prepare(plan: string): ThreadReply {
  try {
    const grammar = compileConstraint(JSON.parse(plan) as ConstraintPlan, new WorkBudget())
    return { grammar: toGrammarData(grammar) }
  } catch (error) {
    if (!(error instanceof ServiceError)) return { failure: String(error) }
    const { message, param, code } = error
    return { refusal: { message, param: param ?? null, code: code ?? null } }
  }
}
