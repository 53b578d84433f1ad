import { failure, type ServiceError } from '#shared/errors.ts'

/** 400: a field has a value that its type allows and its meaning does not. */
export function invalidValue(param: string, reason: string): ServiceError {
  return failure.invalidRequest(`Invalid value for '${param}': ${reason}`, {
    param,
    code: 'invalid_value',
  })
}

/** 400: a field is missing that other fields make necessary. */
export function missingParameter(param: string): ServiceError {
  return failure.invalidRequest(`Missing required parameter: '${param}'.`, {
    param,
    code: 'missing_required_parameter',
  })
}
