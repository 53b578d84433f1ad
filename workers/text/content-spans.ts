import { randomUUID } from 'node:crypto'

import type { WorkBudget } from '#workers/preparation/work-budget.ts'

import type { Value } from './template-values.ts'

/**
 * The author of a part of a prompt. `template` is the text of the model's own chat template,
 * `answer` a turn of the assistant that the client sends back, `content` anything else that a
 * client supplied.
 */
export type Origin = 'template' | 'answer' | 'content'

/** A part of a text that the chat template did not write. */
export interface ContentSpan {
  readonly start: number
  readonly end: number
  readonly origin: Exclude<Origin, 'template'>
}

/** A prompt and its content parts; plain JSON, so that it can be sent to a thread. */
export interface RenderedText {
  readonly text: string
  /** In order, without overlaps. Control tokens are not recognized in content. */
  readonly content: readonly ContentSpan[]
}

/** A text that is entirely content. */
export function contentOnly(text: string): RenderedText {
  return { text, content: [{ start: 0, end: text.length, origin: 'content' }] }
}

/** The first `end` characters. */
export function cutText({ text, content }: RenderedText, end: number): RenderedText {
  return {
    text: text.slice(0, end),
    content: content
      .filter(({ start }) => start < end)
      .map((span) => ({ ...span, end: Math.min(span.end, end) })),
  }
}

/** Writes a margin on both sides of a word wherever the template wrote it. */
export function surround(
  { text, content }: RenderedText,
  word: string,
  margin: string,
): RenderedText {
  const pieces: string[] = []
  const spans: ContentSpan[] = []
  let added = 0
  let from = 0
  const write = (end: number): void => {
    const piece = text.slice(from, end)
    const written = piece.replaceAll(word, () => `${margin}${word}${margin}`)
    pieces.push(written)
    added += written.length - piece.length
    from = end
  }
  for (const span of content) {
    write(span.start)
    pieces.push(text.slice(span.start, span.end))
    spans.push({ ...span, start: span.start + added, end: span.end + added })
    from = span.end
  }
  write(text.length)
  return { text: pieces.join(''), content: spans }
}

/** A string value of the template interpreter. */
interface TextValue {
  readonly value: string
}

/** Consecutive characters of one origin. */
interface Run {
  readonly length: number
  readonly origin: Origin
}

const RUNS_MAX = 250_000 // thousands of messages have some ten thousand

interface Printed extends TextValue {
  readonly runs: readonly Run[]
}

/**
 * Records the author of each character in the string values of one rendering. A value without a
 * record is content, so an unknown operation never turns content into template text.
 *
 * The library joins printed values to one string. A printed value that is not entirely from the
 * template is therefore printed as a mark that clients cannot guess, and replaced by `resolve`.
 */
export class TemplateOrigins {
  readonly #runs = new WeakMap<object, readonly Run[]>()
  readonly #printed: Printed[] = []
  readonly #mark = randomUUID()
  readonly #pattern = new RegExp(`${this.#mark}:(\\d+);`, 'g')
  readonly #budget: WorkBudget

  /** Charges the budget for each run that is read. */
  constructor(budget: WorkBudget) {
    this.#budget = budget
  }

  has(value: object): boolean {
    return this.#runs.has(value)
  }

  /** Records one origin for a whole value. */
  set(value: TextValue, origin: Origin): void {
    this.#runs.set(value, [{ length: value.value.length, origin }])
  }

  /** The origin of a value derived from this one: that of its least trusted part. */
  leastOf(value: TextValue): Origin {
    return leastTrusted(this.#runsOf(value).map(({ origin }) => origin))
  }

  isTemplate(value: TextValue): boolean {
    return this.leastOf(value) === 'template'
  }

  /** Records a value that is the concatenation of others. */
  join(joined: TextValue, parts: readonly (TextValue | { readonly length: number })[]): void {
    const runs = parts.flatMap((part): readonly Run[] =>
      'value' in part ? this.#runsOf(part) : [{ length: part.length, origin: 'content' }],
    )
    this.record(joined, runs)
  }

  /** Records a value that is a part of another, starting at `start`. */
  slice(part: TextValue, whole: TextValue, start: number): void {
    const end = start + part.value.length
    let at = 0
    const runs: Run[] = []
    for (const { length, origin } of this.#runsOf(whole)) {
      const kept = Math.min(at + length, end) - Math.max(at, start)
      if (kept > 0) runs.push({ length: kept, origin })
      at += length
    }
    this.record(part, runs)
  }

  /** The printed form of a value: itself if the template wrote it, else a mark. */
  print(value: TextValue): string {
    if (this.isTemplate(value)) return value.value
    this.#printed.push({ value: value.value, runs: this.#runsOf(value) })
    return `${this.#mark}:${this.#printed.length - 1};`
  }

  hasMark(text: string): boolean {
    return text.includes(this.#mark)
  }

  /** Printed text with the values in place of their marks. */
  resolve(printed: string): { readonly text: string; readonly runs: readonly Run[] } {
    const texts: string[] = []
    const runs: Run[] = []
    let end = 0
    const add = (text: string): void => {
      texts.push(text)
      runs.push({ length: text.length, origin: 'template' })
    }
    for (const { 0: mark, 1: index, index: at } of printed.matchAll(this.#pattern)) {
      add(printed.slice(end, at))
      const { value, runs: own } = this.#printed[Number(index)] as Printed
      this.#budget.charge(own.length)
      texts.push(value)
      for (const run of own) runs.push(run)
      end = at + mark.length
    }
    add(printed.slice(end))
    return { text: texts.join(''), runs }
  }

  /** Records runs, such as those found by `resolve`. */
  record(value: TextValue, runs: readonly Run[]): void {
    const merged: Run[] = []
    let total = 0
    for (const run of runs) {
      total += run.length
      const last = merged.at(-1)
      if (last?.origin === run.origin) {
        merged[merged.length - 1] = { ...last, length: last.length + run.length }
      } else if (run.length > 0) merged.push(run)
    }
    if (merged.length > RUNS_MAX) throw new Error('the template joins too many texts')
    if (total === value.value.length) this.#runs.set(value, merged)
    else this.set(value, 'content')
  }

  #runsOf(value: TextValue): readonly Run[] {
    const runs = this.#runs.get(value)
    if (runs === undefined) return [{ length: value.value.length, origin: 'content' }]
    this.#budget.charge(runs.length)
    return runs
  }
}

/** The least trusted of some origins. */
export function leastTrusted(origins: readonly Origin[]): Origin {
  if (origins.includes('content')) return 'content'
  return origins.includes('answer') ? 'answer' : 'template'
}

/** A rendered text with the parts that are not from the template. */
export function toRenderedText(text: string, runs: readonly Run[]): RenderedText {
  const content: ContentSpan[] = []
  let at = 0
  for (const { length, origin } of runs) {
    const last = content.at(-1)
    if (origin !== 'template' && length > 0) {
      if (last?.end === at && last.origin === origin) {
        content[content.length - 1] = { ...last, end: at + length }
      } else content.push({ start: at, end: at + length, origin })
    }
    at += length
  }
  return { text, content }
}

/** Records a variable of the model folder or of the server. */
export function markOwn(value: Value, origins: TemplateOrigins): void {
  if (value.type === 'StringValue') origins.set(value, 'template')
}

/** The fields of messages with the reasoning of an answer. */
const REASONING_FIELDS = ['reasoning_content', 'reasoning', 'thinking']

/**
 * Roles are fixed by the API, so they are trusted; a turn of the assistant may contain the model's
 * own tags.
 */
export function markTurns(messages: Value, origins: TemplateOrigins): void {
  if (messages.type !== 'ArrayValue') return
  for (const message of messages.value) {
    if (message.type !== 'ObjectValue') continue
    const role = message.value.get('role')
    const content = message.value.get('content')
    if (role?.type === 'StringValue') origins.set(role, 'template')
    if (role?.value !== 'assistant') continue
    const reasoning = REASONING_FIELDS.map((name) => message.value.get(name))
    const parts = content?.type === 'ArrayValue' ? content.value : []
    const texts = parts.map((part) => (part.type === 'ObjectValue' ? part.value.get('text') : part))
    for (const text of [content, ...texts, ...reasoning]) {
      if (text?.type === 'StringValue') origins.set(text, 'answer')
    }
  }
}
