interface JsonAnswer {
  readonly status: number
  // biome-ignore lint/suspicious/noExplicitAny: tests read answers of any shape.
  readonly body: any
}

type JsonCall = (
  method: string,
  path: string,
  bearer?: string,
  body?: object,
) => Promise<JsonAnswer>

/**
 * Calls a server with JSON, and with a token or key where one is given; no answer is an empty
 * object.
 */
export function jsonCallTo(url: string): JsonCall {
  return async (method, path, bearer, body) => {
    const answer = await fetch(`${url}${path}`, {
      method,
      headers: {
        ...(bearer !== undefined && { authorization: `Bearer ${bearer}` }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    return { status: answer.status, body: JSON.parse((await answer.text()) || '{}') }
  }
}
