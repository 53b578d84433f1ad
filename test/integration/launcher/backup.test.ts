import { cp, rm } from 'node:fs/promises'
import { join } from 'node:path'

import OpenAI, { toFile } from 'openai'
import { describe, expect } from 'vitest'

import { it } from '#test/support/services.ts'

import { envOf, type Installation, runCommand, startInstallation } from './installation.ts'

describe('a backup of the data directory', () => {
  it('brings users, keys and files back after everything else is lost', {
    // Two whole starts and stops.
    timeout: 240_000,
  }, async ({ folder }) => {
    const [dataDir, backup] = [join(folder, 'data'), join(folder, 'backup')]
    const person = { email: 'ann@example.test', password: 'a long enough password' }
    const before = await startInstallation(dataDir)
    const key = runCommand(['keys', 'create', '--name', 'kept'], envOf(dataDir)).stdout.trim()
    const { id } = await clientOf(before, key).files.create({
      file: await toFile(Buffer.from('{"text":"kept"}\n'), 'kept.jsonl'),
      purpose: 'user_data',
    })
    await post(before, '/signup', person)
    await before.end('SIGTERM')

    await cp(dataDir, backup, { recursive: true, preserveTimestamps: true })
    await rm(dataDir, { recursive: true })
    const after = await startInstallation(backup)
    try {
      const content = await clientOf(after, key).files.content(id)
      expect(await content.text()).toBe('{"text":"kept"}\n')
      // This answer shows that the password was checked: the user was restored.
      const signIn = await post(after, '/token?grant_type=password', person)
      expect(signIn).toMatchObject({ error_code: 'email_not_confirmed' })
    } finally {
      await after.end('SIGTERM')
    }
  })
})

function clientOf({ port }: Installation, apiKey: string): OpenAI {
  return new OpenAI({ baseURL: `http://localhost:${port}/v1`, apiKey })
}

async function post({ port }: Installation, path: string, body: object): Promise<object> {
  const answer = await fetch(`http://localhost:${port}/auth/v1${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  return (await answer.json()) as object
}
