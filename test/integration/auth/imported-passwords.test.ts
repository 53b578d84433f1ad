import { argon2Sync, scryptSync } from 'node:crypto'

import { hash as bcryptHash } from '@node-rs/bcrypt'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { createUser, PASSWORD, signIn } from './support/people.ts'
import { startServer, type TestServer } from './support/server.ts'

let server: TestServer

beforeAll(async () => {
  server = await startServer()
})

afterAll(() => server.close())

const salt = Buffer.from('sixteen byte salt')
const scryptHash = scryptSync(PASSWORD, salt, 32, { N: 1024, r: 8, p: 1 })

const HASHES: Readonly<Record<string, () => Promise<string>>> = {
  bcrypt: () => bcryptHash(PASSWORD, 4),
  scrypt: async () =>
    `$scrypt$ln=10,r=8,p=1$${salt.toString('base64')}$${scryptHash.toString('base64')}`,
  argon2i: async () => argon2Hash('argon2i', { memory: 64, passes: 3 }),
  'argon2id with other parameters': async () => argon2Hash('argon2id', { memory: 128, passes: 2 }),
}

function argon2Hash(
  kind: 'argon2i' | 'argon2id',
  costs: { readonly memory: number; readonly passes: number },
): string {
  const request = { message: PASSWORD, nonce: salt, parallelism: 1, tagLength: 32 }
  const fields = [salt, argon2Sync(kind, { ...request, ...costs })].map((bytes) =>
    bytes.toString('base64').replace(/=+$/, ''),
  )
  return `$${kind}$v=19$m=${costs.memory},t=${costs.passes},p=1$${fields.join('$')}`
}

describe('a password hash from elsewhere', () => {
  for (const [name, hash] of Object.entries(HASHES)) {
    it(`of the kind ${name} is verified, and replaced at the first sign-in`, async () => {
      const imported = await hash()
      const fields = { password: undefined, password_hash: imported }
      const { id, email } = await createUser(server, fields)
      expect(await storedHash(id)).toBe(imported)
      const body = { email, password: 'not the password' }
      const path = '/token?grant_type=password'
      expect((await server.call({ method: 'POST', path, body })).status).toBe(400)
      expect(await storedHash(id)).toBe(imported)
      await signIn(server, email)
      const upgraded = await storedHash(id)
      expect(upgraded).toMatch(/^\$argon2id\$v=19\$m=64,/)
      await signIn(server, email)
      expect(await storedHash(id)).toBe(upgraded)
    })
  }
})

async function storedHash(id: string): Promise<string> {
  const { rows } = await server.database.pool.query(
    'select password_hash from users where id = $1',
    [id],
  )
  return rows[0].password_hash
}
