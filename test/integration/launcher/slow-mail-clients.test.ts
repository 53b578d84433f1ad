import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, expect, it } from 'vitest'

import { type Mailbox, startMailbox } from '#launcher/embedded/mailbox.ts'
import { openSlowReader, openSlowWriter } from '#test/support/slow-client.ts'

const HEAD = 'HTTP/1.1\r\nhost: localhost\r\n'

let folder: string
let mailbox: Mailbox
let page: URL

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-slow-mail-'))
  mailbox = await startMailbox(folder, { smtpMs: 300, requestMs: 300, answerMs: 600 })
  page = new URL(mailbox.pageUrl)
  // A page that no buffer of the system holds.
  const mail = {
    receivedAt: 'now',
    to: 'a@example.test',
    subject: 'Large',
    text: 'x'.repeat(64 << 20),
  }
  await writeFile(join(folder, '2026-01-01T00-00-00.000Z-00000000.json'), JSON.stringify(mail))
})
afterAll(async () => {
  await mailbox?.stop()
  await rm(folder, { recursive: true, force: true })
})

it.each(['', 'EHLO a\r\n', 'EHLO a\r\nAUTH PLAIN '])(
  'an SMTP client that sends byte by byte after %j is cut',
  async (beginning) => {
    const client = await openSlowWriter(mailbox.smtpPort, beginning)
    await client.cut
  },
)

it('a client of the page that sends its headers byte by byte is cut', async () => {
  const client = await openSlowWriter(Number(page.port), `GET ${page.pathname} ${HEAD}x-slow: `)
  await client.cut
})

it.each([0, 16])('a client of the page that reads %i bytes at a time is cut', async (bytes) => {
  const request = `GET ${page.pathname} ${HEAD}\r\n`
  const client = await openSlowReader(Number(page.port), request, bytes)
  await client.cut
  // The mailbox answers others: here on a path that costs it no rendering.
  expect((await fetch(new URL('/', page))).status).toBe(404)
})
