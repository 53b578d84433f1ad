import { createContext, runInContext } from 'node:vm'

import { isRecord } from '#shared/json.ts'

import { forEachStep } from './tokenizer-steps.ts'

/** The parts of the library's tokenizer that are probed. */
export interface ProbedTokenizer {
  readonly normalizer: unknown
  readonly pre_tokenizer: unknown
  readonly model: unknown
  encode(text: string, options: { readonly add_special_tokens: boolean }): unknown
}

/** The text for a step; patterns of published tokenizers read it within some 10 ms. */
const STEP_CHARS = 32_768
const STEP_MS_MAX = 100
/** Characters of each kind in the text for the whole tokenizer. */
const RUN_CHARS = 1024
const WHOLE_MS_MAX = 1000
/**
 * All attempts together may take this many times the limit, because the first one also compiles the
 * code.
 */
const LIMITS_SPENT_MAX = 3
/**
 * A busy machine gives a thread only a part of the time, so limits apply to the processor time it
 * got.
 */
const WAIT_FACTOR_MAX = 64
/** An attempt that got less than this share of its limit was stopped by the machine. */
const BUSY_SHARE = 0.9
const LITERALS_MAX = 24
const COMMON = ['a', 'A', ' ', '\n', '1', '.', "'", 'é', 'a b ', ' .']

/**
 * Probes a tokenizer with texts of repeated characters. Throws when a pattern takes more than
 * linear time, or the steps together take seconds or write gigabytes, because requests would do so
 * later.
 */
export function probeTokenizer(
  json: Readonly<Record<string, unknown>>,
  live: ProbedTokenizer,
): void {
  const literals = literalsOf(patternsIn([json.normalizer, json.pre_tokenizer]))
  const tryStep = (name: string, method: string) => (step: object, found: object) => {
    const { pattern } = step as { readonly pattern?: unknown }
    const run = (found as Record<string, unknown>)[method]
    if (!isRecord(pattern) || typeof pattern.Regex !== 'string' || typeof run !== 'function') return
    for (const unit of [...COMMON, ...literals]) {
      const text = unit.repeat(STEP_CHARS / unit.length)
      if (endsWithin(() => run.call(found, text, {}), STEP_MS_MAX)) continue
      const shown = pattern.Regex.slice(0, 80)
      throw new Error(
        `tokenizer.json: the pattern ${shown} of ${name} takes too long for ${STEP_CHARS} characters`,
      )
    }
  }
  const { normalizer, pre_tokenizer: preTokenizer } = json
  forEachStep(
    ...([normalizer, live.normalizer, 'normalizers', 'normalizers'] as const),
    tryStep('normalizer', 'normalize'),
  )
  forEachStep(
    ...([preTokenizer, live.pre_tokenizer, 'pretokenizers', 'tokenizers'] as const),
    tryStep('pre_tokenizer', 'pre_tokenize_text'),
  )
  const text = [...COMMON, ...literals].map((unit) => unit.repeat(RUN_CHARS)).join('')
  if (endsWithin(() => live.encode(text, { add_special_tokens: false }), WHOLE_MS_MAX)) return
  throw new Error(`tokenizer.json: ${text.length} characters take too much time or memory`)
}

/** Whether work ends within its processor time at least once. Its own errors count as an end. */
function endsWithin(work: () => unknown, limitMs: number): boolean {
  const context = createContext({ work })
  let spentMs = 0
  let factor = 1
  while (spentMs < LIMITS_SPENT_MAX * limitMs && factor <= WAIT_FACTOR_MAX) {
    const startMs = processorMs()
    let ended = true
    try {
      // The time limit of a script also stops the functions that it calls, and regular expressions.
      runInContext('work()', context, { timeout: limitMs * factor })
    } catch (error) {
      // The text exceeds the maximum length of the engine.
      if (error instanceof RangeError) return false
      ended = (error as NodeJS.ErrnoException).code !== 'ERR_SCRIPT_EXECUTION_TIMEOUT'
    }
    const usedMs = processorMs() - startMs
    if (ended && usedMs <= limitMs) return true
    if (!ended && usedMs < limitMs * BUSY_SHARE) factor *= 2
    spentMs += usedMs
  }
  return false
}

/** The processor time of this thread; of the process before Node 24. */
function processorMs(): number {
  const { user, system } = process.threadCpuUsage?.() ?? process.cpuUsage()
  return (user + system) / 1000
}

const ESCAPES = /\\[pP]\{[^}]*\}|\\./gu
const SYNTAX = /[\^$.*+?()[\]{}|\\]/u

/** Characters that occur in patterns, each of which a hostile text may repeat. */
function literalsOf(patterns: readonly string[]): string[] {
  const characters = new Set(patterns.flatMap((text) => [...text.replaceAll(ESCAPES, '')]))
  return [...characters].filter((character) => !SYNTAX.test(character)).slice(0, LITERALS_MAX)
}

/** The patterns within the JSON of a step, whose depth is bounded. */
function patternsIn(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([name, inner]) =>
    typeof inner !== 'string'
      ? patternsIn(inner)
      : ['Regex', 'String'].includes(name)
        ? [inner]
        : [],
  )
}
