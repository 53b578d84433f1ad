import { describe, expect, it } from 'vitest'

import { CAN_RELEASE_PAGES, releasePages } from '#workers/runtime/release-pages.ts'

const BYTES = 4 * 2 ** 20
const PART = { from: BYTES / 4 + 1000, to: BYTES / 2 + 1000 }

describe.runIf(CAN_RELEASE_PAGES)('pages that are given back', () => {
  it('do not affect the memory around them, and can be written again', () => {
    const data = new Uint8Array(BYTES).fill(7)
    releasePages(data.subarray(PART.from, PART.to))
    expect(data.subarray(0, PART.from).every((byte) => byte === 7)).toBe(true)
    expect(data.subarray(PART.to).every((byte) => byte === 7)).toBe(true)
    // macOS frees them when memory is short; what they hold until then is not defined.
    if (process.platform === 'linux') expect(data[(PART.from + PART.to) / 2]).toBe(0)
    data.fill(9)
    expect(data.every((byte) => byte === 9)).toBe(true)
  })

  it('do not exist in a part that is smaller than a page', () => {
    const data = new Uint8Array(BYTES).fill(7)
    releasePages(data.subarray(5000, 5100))
    expect(data.every((byte) => byte === 7)).toBe(true)
  })
})
