import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'

import { expect, it } from 'vitest'

import { PassThroughBytes, passThrough } from '#api/http/pass-through.ts'

const CHUNK = Buffer.alloc(65_536, 'abc')

function source(chunks: number): Readable {
  return Readable.from(Array.from({ length: chunks }, () => CHUNK))
}

it('hands on every byte, and shows each chunk once', async () => {
  let bytes = 0
  const passing = new PassThroughBytes((chunk) => (bytes += chunk.length))
  const found = await buffer(passThrough(source(300), passing))
  expect(bytes).toBe(300 * CHUNK.length)
  expect(found.equals(Buffer.concat(Array.from({ length: 300 }, () => CHUNK)))).toBe(true)
})

it('ends with the error of its inspection, which does not blame the source', async () => {
  const from = source(10)
  const passing = new PassThroughBytes(() => {
    throw new Error('too much')
  })
  await expect(buffer(passThrough(from, passing))).rejects.toThrow('too much')
  expect(from.destroyed).toBe(true)
  expect(from.errored).toBeNull()
})

it('ends with the error of its source, also before it is read', async () => {
  const from = source(10)
  const passing = passThrough(from, new PassThroughBytes())
  from.destroy(new Error('the sender went away'))
  await new Promise((resolve) => passing.once('close', resolve))
  await expect(buffer(passing)).rejects.toThrow('the sender went away')
})

it('ends when its source ends too early', async () => {
  const from = source(10)
  const passing = passThrough(from, new PassThroughBytes())
  from.destroy()
  await expect(buffer(passing)).rejects.toThrow('Premature close')
})

it('releases the source when its reader ends', async () => {
  const from = source(10)
  const passing = passThrough(from, new PassThroughBytes())
  passing.destroy()
  await new Promise((resolve) => from.once('close', resolve))
  expect(from.errored).toBeNull()
})
