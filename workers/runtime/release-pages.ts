import koffi from 'koffi'

import { addressOf } from './native.ts'

/** `madvise` frees pages now (MADV_DONTNEED) or when memory is short (MADV_FREE). */
const ADVICE: Readonly<Record<string, number>> = { linux: 4, darwin: 5 }

/** Whether memory can be released while its addresses stay reserved. */
export const CAN_RELEASE_PAGES = process.platform in ADVICE

let calls: ReturnType<typeof openCalls> | undefined

/**
 * Returns the whole pages inside a part of a buffer to the system. Its elements are undefined until
 * they are written again.
 */
export function releasePages(data: ArrayBufferView): void {
  const advice = ADVICE[process.platform]
  if (advice === undefined) return
  calls ??= openCalls()
  const address = addressOf(data)
  const page = BigInt(calls.pageBytes)
  const start = ((address + page - 1n) / page) * page
  const end = ((address + BigInt(data.byteLength)) / page) * page
  // If the system refuses, the memory stays allocated.
  if (end > start) calls.advise(start, Number(end - start), advice)
}

function openCalls() {
  const library = koffi.load(null)
  return {
    pageBytes: library.func('int getpagesize()')() as number,
    advise: library.func('int madvise(void *, size_t, int)'),
  }
}
