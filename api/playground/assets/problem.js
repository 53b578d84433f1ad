/** An error with a readable message. */
export class Problem extends Error {
  /** @param {string} sentence @param {number} [status] */
  constructor(sentence, status = 0) {
    super(sentence)
    this.name = 'Problem'
    this.status = status
  }
}

/** Readable status texts; the server's own message follows. @type {Record<number, string>} */
const BY_STATUS = {
  401: 'The key or sign-in was not accepted.',
  403: 'This is not allowed with your key.',
  404: 'This is not served here.',
  413: 'That is too large.',
  429: 'Too many requests at the moment.',
  500: 'Something went wrong on the server.',
  502: 'A service behind the server does not answer.',
  503: 'The server has no room at the moment.',
  504: 'It took too long.',
}

/**
 * Reads the error of an unsuccessful answer. @param {Response} response @returns {Promise<Problem>}
 */
export async function problemOf(response) {
  const text = await response.text().catch(() => '')
  const sentences = [BY_STATUS[response.status] ?? '', messageIn(text)]
  const wait = response.headers.get('retry-after')
  if (wait !== null) sentences.push(`Try again in ${wait} s.`)
  const said = sentences.filter((sentence) => sentence !== '').join(' ')
  return new Problem(said || `The server answered ${response.status}.`, response.status)
}

/** The message of an error body in any dialect of the service. @param {string} text */
export function messageIn(text) {
  try {
    const body = JSON.parse(text)
    const message = body?.error?.message ?? body?.error_description ?? body?.msg ?? body?.message
    return typeof message === 'string' ? message : ''
  } catch {
    return ''
  }
}

/** The message of a thrown value. @param {unknown} thrown */
export function inWords(thrown) {
  if (thrown instanceof Problem) return thrown.message
  if (thrown instanceof DOMException && thrown.name === 'AbortError') return 'Stopped.'
  if (thrown instanceof TypeError) return 'The server cannot be reached. Is it running?'
  return thrown instanceof Error ? thrown.message : 'Something went wrong.'
}
