import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { get } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { createTransport } from 'nodemailer'
import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { type Mailbox, startMailbox } from '#launcher/embedded/mailbox.ts'
import { expectUsable, LOOKS, type Look, openPage, startBrowser } from '#test/support/browser.ts'
import { BROWSER_TIMEOUT_MS } from '#test/support/chromium.ts'

const LINK = 'http://localhost:8081/verify?token=abc&type=signup&redirect_to=http://localhost:3000'
const HOSTILE = '<img src=x onerror="document.title=1">'
const LONG_ADDRESS = `${'x'.repeat(64)}@${'y'.repeat(60)}.example.test`

let folder: string
let mailbox: Mailbox
let browser: Browser

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-mailbox-'))
  mailbox = await startMailbox(folder)
  browser = await startBrowser()
}, BROWSER_TIMEOUT_MS)
afterAll(async () => {
  await browser?.close()
  await mailbox?.stop()
  await rm(folder, { recursive: true, force: true })
})

async function send(mail: { readonly subject: string; readonly text: string }): Promise<void> {
  const { smtpPort: port, smtpUser: user, smtpPassword: pass } = mailbox
  const transport = createTransport({
    host: '127.0.0.1',
    port,
    ignoreTLS: true,
    auth: { user, pass },
  })
  await transport.sendMail({ from: 'no-reply@example.test', to: LONG_ADDRESS, ...mail })
  transport.close()
}

/** Opens the page and reads the addresses that the newest mail links to. */
async function linksOfNewest(): Promise<string[]> {
  const { page, close } = await openPage(browser)
  await page.goto(mailbox.pageUrl)
  const links = await page.locator('article').first().getByRole('link').all()
  const addresses = await Promise.all(links.map((link) => link.getAttribute('href')))
  await close()
  return addresses.map((address) => address ?? '')
}

describe('another local user', () => {
  it.for([undefined, { user: 'millrace', pass: 'guessed' }])(
    'cannot send a mail with the credentials %j',
    async (auth) => {
      const { smtpPort: port } = mailbox
      const transport = createTransport({
        host: '127.0.0.1',
        port,
        ignoreTLS: true,
        ...(auth !== undefined && { auth }),
      })
      const mail = { from: 'a@example.test', to: 'b@example.test', subject: 'forged', text: 'x' }
      await expect(transport.sendMail(mail)).rejects.toThrow(/530|535/)
      transport.close()
    },
  )

  it.for(['/', '/mails', `/${'0'.repeat(48)}/`, '//'])(
    'cannot read the page at %s',
    async (path) => {
      await send({ subject: 'A secret link', text: LINK })
      const answer = await fetch(`${new URL(mailbox.pageUrl).origin}${path}`)
      expect(answer.status).toBe(404)
      expect(await answer.text()).toBe('')
    },
  )

  it('cannot read it through a name of another site that resolves to this machine', async () => {
    const { hostname, port, pathname } = new URL(mailbox.pageUrl)
    const headers = { host: `attacker.example:${port}` }
    const status = await new Promise((resolve, reject) => {
      get({ hostname, port, path: pathname, headers }, (answer) => {
        answer.resume()
        resolve(answer.statusCode)
      }).on('error', reject)
    })
    expect(status).toBe(403)
  })
})

describe('the mailbox page', () => {
  it.for([
    ['on a line of its own', `Follow this link:\n${LINK}\n`],
    ['at the end of a sentence', `Follow ${LINK}.`],
    ['in quotes', `Follow "${LINK}", please`],
    ['in angle brackets', `Follow <${LINK}>`],
    ['in brackets', `Follow the link (${LINK})`],
  ] as const)('links to an address %s as it is', async ([, text]) => {
    await send({ subject: 'Confirm', text })
    expect(await linksOfNewest()).toEqual([LINK])
  })

  it('shows long and hostile texts as texts, within a small screen', async () => {
    await send({ subject: `${HOSTILE}${'z'.repeat(300)}`, text: HOSTILE })
    const { page, problems, close } = await openPage(browser, LOOKS[0] as Look)
    const answer = await page.goto(mailbox.pageUrl)
    const policy = await answer?.headerValue('content-security-policy')
    expect(policy).toContain("frame-ancestors 'none'")
    expect(await page.locator('article pre').first().textContent()).toContain(HOSTILE)
    await expectUsable(page)
    expect(problems).toEqual([])
    await close()
  })

  it('shows the other mails when one was cut off while it was written', async () => {
    await send({ subject: 'A whole mail', text: 'whole' })
    await writeFile(join(folder, '2026-01-01T00-00-00.000Z-00000000.json'), '{"receivedAt":"20')
    const answer = await fetch(mailbox.pageUrl)
    expect(answer.status).toBe(200)
    expect(await answer.text()).toContain('A whole mail')
  })
})
