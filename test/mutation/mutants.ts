import { stripTypeScriptTypes } from 'node:module'

import { parseAst } from 'vitest/node'

/** One small change of a file's text. */
export interface Mutant {
  readonly start: number
  readonly end: number
  readonly replacement: string
  readonly line: number
  /** For people, such as `a < b → a <= b`. */
  readonly title: string
}

interface Node {
  readonly type: string
  readonly start: number
  readonly end: number
  readonly [field: string]: unknown
}

const OPERATORS: Readonly<Record<string, string>> = {
  '<': '<=',
  '<=': '<',
  '>': '>=',
  '>=': '>',
  '===': '!==',
  '!==': '===',
  '+': '-',
  '-': '+',
  '*': '/',
  '/': '*',
  '%': '*',
  '&': '|',
  '|': '&',
  '&&': '||',
  '||': '&&',
  '??': '&&',
}
const TITLE_LENGTH_MAX = 60

/** Every mutant of a TypeScript file; none of those that a type or a comment would hold. */
export function findMutants(source: string): Mutant[] {
  // Types become spaces, so that every place in one text is the same place in the other.
  const code = stripTypeScriptTypes(source)
  const mutants: Mutant[] = []
  const change = (node: Node, replacement: string): void => {
    const before = source.slice(node.start, node.end)
    const line = source.slice(0, node.start).split('\n').length
    const title = `${shorten(before)} → ${shorten(replacement)}`
    mutants.push({ start: node.start, end: node.end, replacement, line, title })
  }
  const text = ({ start, end }: Node): string => source.slice(start, end)
  walk(parseAst(code) as unknown as Node, (node) => {
    for (const replacement of replacementsOf(node, text)) change(node, replacement)
  })
  return mutants
}

function replacementsOf(node: Node, text: (node: Node) => string): string[] {
  switch (node.type) {
    case 'BinaryExpression':
    case 'LogicalExpression': {
      const other = OPERATORS[node.operator as string]
      const [left, right] = [node.left as Node, node.right as Node]
      // Texts are joined by +, and have no difference.
      const isText = [left, right].some(({ type, value }) => {
        return type === 'TemplateLiteral' || typeof value === 'string'
      })
      if (other === undefined || (isText && node.operator === '+')) return []
      return [`(${text(left)}) ${other} (${text(right)})`]
    }
    case 'UnaryExpression':
      return node.operator === '!' ? [text(node.argument as Node)] : []
    case 'ConditionalExpression':
      return [text(node.consequent as Node), text(node.alternate as Node)]
    case 'Literal':
      if (typeof node.value === 'boolean') return [String(!node.value)]
      return typeof node.value === 'number' ? [String(node.value + 1)] : []
    case 'IfStatement':
      return [withTest(node, 'false', text), withTest(node, 'true', text)]
    case 'ExpressionStatement':
      return (node.expression as Node).type === 'Literal' ? [] : [';']
    default:
      return []
  }
}

/** An `if` with another condition. */
function withTest(node: Node, test: string, text: (node: Node) => string): string {
  const alternate = node.alternate as Node | null
  const rest = alternate === null ? '' : ` else ${text(alternate)}`
  return `if (${test}) ${text(node.consequent as Node)}${rest}`
}

function walk(node: Node, visit: (node: Node) => void): void {
  // Names and places of imports are not behaviour.
  if (node.type === 'ImportDeclaration') return
  visit(node)
  for (const value of Object.values(node)) {
    for (const child of Array.isArray(value) ? value : [value]) {
      if (typeof child === 'object' && child !== null && 'type' in child) walk(child as Node, visit)
    }
  }
}

function shorten(text: string): string {
  const line = text.replace(/\s+/g, ' ').trim()
  if (line === '' || line === ';') return 'nothing'
  return line.length > TITLE_LENGTH_MAX ? `${line.slice(0, TITLE_LENGTH_MAX)}…` : line
}
