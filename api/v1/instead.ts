const RESPONSES = '/v1/responses with a conversation or previous_response_id'
/** Paths of OpenAI, Anthropic and other dialects that are not served, and what to use instead. */
const INSTEAD: Readonly<Record<string, string>> = {
  vector_stores: '/v1/embeddings, /v1/rerank and a function that searches',
  assistants: RESPONSES,
  threads: RESPONSES,
  realtime: '/v1/audio/transcriptions with stream, /v1/chat/completions and /v1/audio/speech',
  decisions: '/v1/chat/completions with a response_format',
  complete: '/v1/messages',
  'messages/batches': '/v1/batches with the endpoint /v1/messages',
  // Only this path, because others below it are served.
  '/chat': '/v1/chat/completions',
  pooling: '/v1/embeddings, /v1/multi-vector or /v1/classify',
  tokenizer_info: 'the files of the model, or /tokenize and /detokenize',
  organization: '/v1/usage, /v1/api_keys and /v1/organizations',
  // Ollama's own API, and Azure's.
  'api/chat': '/v1/chat/completions',
  'api/generate': '/v1/completions',
  'api/embed': '/v1/embeddings',
  'api/tags': '/v1/models',
  'openai/deployments': '/v1 as the base URL of a client for OpenAI',
}

/**
 * The end of the error message for a path that is not served; empty if there is nothing to say.
 * Most unknown paths come from a base URL that lacks `/v1`, or has it twice or below another path.
 */
export function insteadOf(path: string, isServed: (path: string) => boolean): string {
  const at = path.lastIndexOf('/v1/')
  const meant = at < 0 ? `/v1${path}` : path.slice(at)
  if (isServed(meant)) return `. Did you mean ${meant}? Check the base URL of the client.`
  const whole = path.replace(/^\/v\d+(?=\/)/, '')
  const [name = '', next = ''] = whole.split('/').slice(1)
  const known = [whole, `${name}/${next}`, name].find((key) => Object.hasOwn(INSTEAD, key))
  return known === undefined ? '' : `. It is not served here; use ${INSTEAD[known]}.`
}
