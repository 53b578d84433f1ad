import { failure, type ServiceError } from '#shared/errors.ts'

/** Whether a number that a client sent names a token of a vocabulary. */
export function isTokenId(tokenId: number, vocabSize: number): boolean {
  return Number.isInteger(tokenId) && tokenId >= 0 && tokenId < vocabSize
}

/** The refusal of a number that names no token. */
export function unknownTokenId(param: string, shown: string, vocabSize: number): ServiceError {
  return failure.invalidRequest(
    `Invalid '${param}': ${shown} is not a token id of this model (out of vocabulary). ` +
      `Expected integers from 0 to ${vocabSize - 1}, as it has ${vocabSize} tokens.`,
    { param, code: 'invalid_value' },
  )
}
