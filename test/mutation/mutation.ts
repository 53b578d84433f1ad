/** A change of one file, as the runner hands it to the process that tests it. */
export interface Mutation {
  readonly file: string
  readonly start: number
  readonly end: number
  readonly replacement: string
}

const NAME = 'MUTATION'

/** The environment of a process that is to test a change. */
export const mutationEnv = (mutation: Mutation): Record<string, string> => ({
  [NAME]: JSON.stringify(mutation),
})

/** The change that this process is to test. */
export function readMutation(env: NodeJS.ProcessEnv): Mutation {
  return JSON.parse(env[NAME] ?? '{}') as Mutation
}
