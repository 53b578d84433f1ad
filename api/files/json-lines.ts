import { isUtf8 } from 'node:buffer'

import { failure, type ServiceError } from '#shared/errors.ts'
import { isRecord, judgeJson, parseRecord } from '#shared/json.ts'

/** The required fields of every line, by purpose; other purposes accept any bytes. */
const LINE_RULES: Readonly<Record<string, LineRule>> = {
  search: { keys: 'text and (optional) metadata', isValid: (line) => hasText(line, 'text') },
  answers: { keys: 'text and (optional) metadata', isValid: (line) => hasText(line, 'text') },
  classifications: {
    keys: 'text/label and (optional) metadata',
    isValid: (line) => hasText(line, 'text') && hasText(line, 'label'),
  },
  'fine-tune': {
    keys: 'prompt/completion',
    isValid: (line) =>
      Array.isArray(line.messages) || (hasText(line, 'prompt') && hasText(line, 'completion')),
  },
  batch: {
    keys: 'custom_id/method/url/body',
    isValid: (line) =>
      hasText(line, 'custom_id') &&
      hasText(line, 'method') &&
      hasText(line, 'url') &&
      isRecord(line.body),
  },
}

interface LineRule {
  readonly keys: string
  isValid(line: Record<string, unknown>): boolean
}

/** The purposes of uploads. */
export const PURPOSES: readonly string[] = [
  'search',
  'answers',
  'classifications',
  'fine-tune',
  'batch',
  'user_data',
  'vision',
  'assistants',
  'evals',
]

const LINE_BYTES_MAX = 4 * 1024 * 1024
const NEWLINE = 0x0a
const OPENING_BRACE = 0x7b
// Allowed before an object: blanks, and a byte order mark.
const BLANKS: readonly number[] = [0x20, 0x09, 0x0d, 0xef, 0xbb, 0xbf]
const HINT_BYTES = 80

/**
 * Checks JSON lines while they stream. The purpose may arrive after the file (forms send fields in
 * any order), so the first fault is recorded for each purpose that is still possible.
 */
export class JsonLinesCheck {
  #pending: Buffer[] = []
  #pendingBytes = 0
  #lineNumber = 0
  #isEmpty = true
  #hasBegun = false
  readonly #faults = new Map<string, ServiceError>()
  readonly #purposes: readonly string[]

  constructor(purpose: string | undefined) {
    this.#purposes = Object.keys(LINE_RULES).filter(
      (name) => purpose === undefined || name === purpose,
    )
  }

  /** Adds the next bytes of the file. */
  push(chunk: Buffer): void {
    const end = chunk.indexOf(NEWLINE)
    if (end === -1 || this.#isDecided()) {
      this.#keepRest(chunk)
      return
    }
    this.#keep(chunk.subarray(0, end))
    this.#endLine()
    const lastEnd = chunk.lastIndexOf(NEWLINE)
    if (lastEnd > end) this.#takeLines(chunk.subarray(end + 1, lastEnd))
    this.#keepRest(chunk.subarray(lastEnd + 1))
  }

  /** Checks complete lines, decoded together: that costs half of decoding them one by one. */
  #takeLines(lines: Buffer): void {
    if (lines.length <= LINE_BYTES_MAX && isUtf8(lines)) {
      let start = 0
      for (const line of lines.toString('utf8').split('\n')) {
        if (this.#isDecided()) return
        this.#lineNumber += 1
        const end = start + Buffer.byteLength(line)
        this.#takeText(line.trim(), lines.subarray(start, end))
        start = end + 1
      }
      return
    }
    let start = 0
    while (start <= lines.length && !this.#isDecided()) {
      const found = lines.indexOf(NEWLINE, start)
      const end = found === -1 ? lines.length : found
      this.#keep(lines.subarray(start, end))
      this.#endLine()
      start = end + 1
    }
  }

  #keepRest(bytes: Buffer): void {
    if (this.#isDecided()) this.#clear()
    else this.#keep(bytes)
  }

  /** Every purpose has a fault already, so more lines change nothing. */
  #clear(): void {
    this.#pending = []
    this.#pendingBytes = 0
  }

  /** The first fault for this purpose after all bytes were added, or undefined. */
  finish(purpose: string): ServiceError | undefined {
    if (this.#pendingBytes > 0) this.#endLine()
    if (LINE_RULES[purpose] === undefined) return undefined
    if (this.#isEmpty) return fault('The file is empty.')
    return this.#faults.get(purpose)
  }

  #isDecided(): boolean {
    return this.#faults.size === this.#purposes.length
  }

  #keep(bytes: Buffer): void {
    if (bytes.length === 0) return
    // Bytes without a newline are bounded.
    if (!this.#hasBegun) {
      const first = bytes.find((byte) => !BLANKS.includes(byte))
      this.#hasBegun = first !== undefined
      if (first !== undefined && first !== OPENING_BRACE) {
        this.#isEmpty = false
        this.#noteNoRecord(this.#lineNumber + 1, bytes.toString('utf8', 0, HINT_BYTES).trim())
      }
    }
    this.#pendingBytes += bytes.length
    if (this.#pendingBytes <= LINE_BYTES_MAX) this.#pending.push(bytes)
  }

  #endLine(): void {
    const bytes = this.#pendingBytes
    const line = Buffer.concat(this.#pending)
    this.#pending = []
    this.#pendingBytes = 0
    this.#hasBegun = false
    this.#lineNumber += 1
    if (bytes > LINE_BYTES_MAX) {
      this.#isEmpty = false
      this.#note(() => `Line ${this.#lineNumber} is longer than ${LINE_BYTES_MAX} bytes.`)
      return
    }
    if (!isUtf8(line)) {
      this.#isEmpty = false
      this.#note(() => `Expected file to be UTF-8 text, but line ${this.#lineNumber} is not.`)
      return
    }
    this.#takeText(line.toString('utf8').trim(), line)
  }

  #takeText(text: string, bytes: Buffer): void {
    // Empty lines are ignored.
    if (text === '') return
    this.#isEmpty = false
    const tooComplex = judgeJson(bytes)
    if (tooComplex !== undefined) {
      this.#note(() => `Line ${this.#lineNumber}: ${tooComplex.message}`)
      return
    }
    const parsed = parseRecord(text)
    if (parsed === undefined) {
      this.#noteNoRecord(this.#lineNumber, text)
      return
    }
    this.#note((rule) =>
      rule.isValid(parsed)
        ? undefined
        : `Expected file to have JSONL format with ${rule.keys} keys. Invalid format on line ${this.#lineNumber}.`,
    )
  }

  #noteNoRecord(lineNumber: number, text: string): void {
    const hint = `(HINT: line starts with: ${JSON.stringify(text.slice(0, 20))})`
    this.#note(
      () =>
        `Expected file to have JSONL format, where every line is a JSON dictionary. Line ${lineNumber} is not a dictionary ${hint}.`,
    )
  }

  #note(messageFor: (rule: LineRule) => string | undefined): void {
    for (const purpose of this.#purposes) {
      if (this.#faults.has(purpose)) continue
      const message = messageFor(LINE_RULES[purpose] as LineRule)
      if (message !== undefined) this.#faults.set(purpose, fault(message))
    }
  }
}

function fault(message: string): ServiceError {
  return failure.invalidRequest(message, { param: 'file', code: 'invalid_file_format' })
}

function hasText(line: Record<string, unknown>, key: string): boolean {
  const value = line[key]
  return typeof value === 'string' && (value !== '' || key === 'completion')
}
