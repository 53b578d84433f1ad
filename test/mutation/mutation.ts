import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

/** A change of one file, as the runner hands it to the process that tests it. */
export interface Mutation {
  readonly file: string
  readonly start: number
  readonly end: number
  readonly replacement: string
}

const NAME = 'MUTATION'

/** The environment of a process that is to test a change; its child processes test it too. */
export function mutationEnv(mutation: Mutation): Record<string, string> {
  const hooks = pathToFileURL(join(import.meta.dirname, 'change-processes.ts'))
  return {
    [NAME]: JSON.stringify(mutation),
    NODE_OPTIONS: `${process.env.NODE_OPTIONS ?? ''} --import=${hooks}`.trim(),
  }
}

/** The change that this process is to test. */
export function readMutation(env: NodeJS.ProcessEnv): Mutation {
  const text = env[NAME]
  if (text === undefined) throw new Error(`${NAME} is not set`)
  return JSON.parse(text) as Mutation
}

/** The text of the file after the change. */
export function applyMutation(text: string, { start, end, replacement }: Mutation): string {
  return text.slice(0, start) + replacement + text.slice(end)
}
