/** A model file that cannot be loaded; the message names the file and is not meant for clients. */
export class ModelLoadError extends Error {
  readonly file: string

  constructor(file: string, reason: string) {
    super(`${file}: ${reason}`)
    this.name = 'ModelLoadError'
    this.file = file
  }
}

/** The reason for which a run failed. */
type ModelRunProblem =
  | 'missingInput'
  | 'unknownInput'
  | 'unknownOutput'
  | 'wrongType'
  | 'wrongShape'
  | 'closed'
  | 'failed'

/** A run that failed; `tensorName` is the input or output at fault, when it is known. */
export class ModelRunError extends Error {
  readonly problem: ModelRunProblem
  readonly tensorName: string | undefined

  constructor(problem: ModelRunProblem, message: string, tensorName?: string) {
    super(message)
    this.name = 'ModelRunError'
    this.problem = problem
    this.tensorName = tensorName
  }
}
