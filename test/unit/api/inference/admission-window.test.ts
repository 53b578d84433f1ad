import { expect, it } from 'vitest'

import { AdmissionWindow } from '#api/jobs/admission.ts'

it.each([
  ['an older start of the same generation', { generation: 'g', position: 3 }, 4],
  ['a newer start', { generation: 'g', position: 5 }, 5],
  ['a start of another generation', { generation: 'h', position: 1 }, 1],
])('the newest start of a queue after %s', (_, start, position) => {
  const window = new AdmissionWindow()
  window.noteStart({ generation: 'g', position: 4 })
  window.noteStart(start)
  expect(window.newestStart?.position).toBe(position)
})
