import { scryptSync } from 'node:crypto'

import argon2 from 'argon2'
import bcrypt from 'bcryptjs'
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
  bcrypt: () => bcrypt.hash(PASSWORD, 4),
  scrypt: async () =>
    `$scrypt$ln=10,r=8,p=1$${salt.toString('base64')}$${scryptHash.toString('base64')}`,
  argon2i: () => argon2.hash(PASSWORD, { type: argon2.argon2i, memoryCost: 64 }),
  'argon2id with other parameters': () => argon2.hash(PASSWORD, { memoryCost: 128, timeCost: 2 }),
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
