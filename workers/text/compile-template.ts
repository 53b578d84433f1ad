import { Template } from '@huggingface/jinja'

import type { Node, Program } from './template-values.ts'

/** Compiles a template. Throws when it is malformed. */
export function compileTemplate(text: string): Program {
  const program = (new Template(text) as unknown as { readonly parsed: Program }).parsed
  markOutputs(program)
  return program
}

/** A printed expression. */
export const OUTPUT = 'Output'
const STATEMENTS: ReadonlySet<string> = new Set([
  ...['Set', 'If', 'For', 'Macro', 'CallStatement', 'FilterStatement', 'Break', 'Continue'],
  ...['Comment', 'StringLiteral'],
])

export interface OutputNode {
  readonly type: string
  readonly printed: Node
}

/** Marks printed expressions, whose values are written in Python's format. */
function markOutputs(node: object): void {
  for (const [name, child] of Object.entries(node) as [string, unknown][]) {
    if (Array.isArray(child) && ['body', 'alternate', 'defaultBlock'].includes(name)) {
      for (const [index, statement] of (child as { type: string }[]).entries()) {
        if (STATEMENTS.has(statement.type)) markOutputs(statement)
        else child[index] = { type: OUTPUT, printed: statement } satisfies OutputNode
      }
    }
  }
}
