import { execFile } from 'node:child_process'
import { argon2Sync } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'

import { describe, expect, it } from 'vitest'

import { createPasswordHasher } from '#api/auth/passwords/password.ts'
import { isKnownPasswordHash } from '#api/auth/passwords/password-hashes.ts'
import { checkPasswordRules } from '#api/auth/passwords/password-rules.ts'
import { systemClock } from '#shared/clock.ts'
import { readPasswordConfig } from '#shared/config/auth-policies.ts'
import { EnvReader } from '#shared/config/env-reader.ts'
import { createLogger } from '#shared/logger.ts'

const run = promisify(execFile)

const config = (env: Record<string, string> = {}) =>
  readPasswordConfig(new EnvReader({ MILLRACE_ARGON2_MEMORY_KIB: '64', ...env }))

const PATIENCE = { clock: systemClock, waitMsMax: 60_000 }

// The example of the README of github.com/firebase/scrypt.
const FIREBASE_HASH = [
  '$fbscrypt$v=1,n=14,r=8,p=1,ss=Bw==',
  'sk=jxspr8Ki0RYycVU8zykbdLGjFQ3McFUH0uiiTvC8pVMXAn210wjLNmdZJzxUECKbm0QsEmYUSDzZvpjeJ9WmXA==$42xEC+ixf3L2lw==$lSrfV15cpx95/sZS2W9c9Kp6i/LVgQNDNC/qzrCnh1SAyZvqmZqAjTdn3aoItz+VHjoZilo78198JAdRuid5lQ==',
].join(',')

describe('the password hasher', () => {
  it('writes argon2id at the parameters of OWASP by default', async () => {
    const hasher = createPasswordHasher(readPasswordConfig(new EnvReader({})), PATIENCE)
    const hash = await hasher.hash('correct horse')
    expect(hash).toMatch(/^\$argon2id\$v=19\$m=19456,t=2,p=1\$/)
    // Another implementation, OpenSSL's, comes to the same bytes.
    const [salt = '', tag = ''] = hash.split('$').slice(-2)
    const costs = { memory: 19_456, passes: 2, parallelism: 1, tagLength: 32 }
    const nonce = Buffer.from(salt, 'base64')
    const expected = argon2Sync('argon2id', { message: 'correct horse', nonce, ...costs })
    expect(Buffer.from(tag, 'base64')).toEqual(expected)
  })

  // The first three from test.c of github.com/P-H-C/phc-winner-argon2, the next two computed with
  // OpenSSL 3; bcrypt's from the tests of crypt_blowfish, scrypt's from RFC 7914, section 12.
  const ELSEWHERE: Readonly<Record<string, readonly [password: string, hash: string]>> = {
    'argon2i of the first version': [
      'password',
      '$argon2i$m=65536,t=2,p=1$c29tZXNhbHQ$9sTbSlTio3Biev89thdrlKKiCaYsjjYVJxGAL3swxpQ',
    ],
    argon2i: [
      'password',
      '$argon2i$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$wWKIMhR9lyDFvRz9YTZweHKfbftvj+qf+YFY4NeBbtA',
    ],
    argon2id: [
      'password',
      '$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc',
    ],
    'argon2d of four lanes': [
      'password',
      '$argon2d$v=19$m=256,t=3,p=4$c29tZXNhbHQ$kCA6nsd9LuEGhSXBeYOADpAxW3fOGVZr',
    ],
    'argon2id with its parameters in another order': [
      'password',
      '$argon2id$v=19$t=2,p=1,m=64$c29tZXNhbHQ$FqGkmHNGCd0BRW2kBt6fPZ2pPmyGwwChL8FGUhTOSSI',
    ],
    bcrypt: ['U*U', '$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW'],
    scrypt: [
      'pleaseletmein',
      '$scrypt$ln=14,r=8,p=1$U29kaXVtQ2hsb3JpZGU=$cCO9yzr9c0hGHAbNgf046/2o+7qQT44+qbVD9lRdofLVQylVYT8Pz2LUlwUkKpr55h6F3A1lHkDfzwF7RVdYhw==',
    ],
    'what Firebase stored': ['user1password', FIREBASE_HASH],
    "what Firebase's libraries hand out": [
      'user1password',
      FIREBASE_HASH.replaceAll('+', '-').replaceAll('/', '_'),
    ],
  }
  for (const [name, [password, hash]] of Object.entries(ELSEWHERE)) {
    it(`verifies ${name}, and says that it must be replaced`, async () => {
      const hasher = createPasswordHasher(config(), PATIENCE)
      expect(isKnownPasswordHash(hash)).toBe(true)
      const right = { isRight: true, needsUpgrade: true }
      expect(await hasher.verify(password, hash)).toEqual(right)
      const wrong = { isRight: false, needsUpgrade: false }
      expect(await hasher.verify(`${password}.`, hash)).toEqual(wrong)
    })
  }

  it('verifies its own hashes, even if the settings exceed the limits of an import', async () => {
    const hasher = createPasswordHasher(config({ MILLRACE_ARGON2_ITERATIONS: '100' }), PATIENCE)
    const hash = await hasher.hash('correct horse')
    expect(isKnownPasswordHash(hash)).toBe(false)
    const right = { isRight: true, needsUpgrade: false }
    expect(await hasher.verify('correct horse', hash)).toEqual(right)
    expect((await hasher.verify('another horse', hash)).isRight).toBe(false)
  })

  it('refuses hashes whose verification would exhaust the machine, and malformed ones', async () => {
    const hasher = createPasswordHasher(config(), PATIENCE)
    for (const hash of [
      '$scrypt$ln=30,r=8,p=1$c2FsdA==$aGFzaA==',
      '$scrypt$ln=14,r=8,p=4000$c2FsdA==$aGFzaA==',
      '$scrypt$ln=14,r=8$c2FsdA==$aGFzaA==',
      // An empty hash would be everybody's password.
      '$scrypt$ln=14,r=8,p=1$c2FsdA==$!!!!',
      '$fbscrypt$v=1,n=14,r=8,p=1,sk=!$c2FsdA==$!',
      '$fbscrypt$v=1,n=30,r=8,p=1,ss=Bw==,sk=AAAA$AAAA$AAAA',
      '$fbscrypt$v=1,n=17,r=16,p=99,ss=Bw==,sk=AAAA$AAAA$AAAA',
      '$argon2id$v=19$m=1048576,t=64,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA',
      '$argon2id$v=19$m=1048576,t=1,p=99999$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA',
      '$argon2id$v=19$m=4294967295,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA',
      '$argon2id$v=19$m=64,t=4294967295,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA',
      '$argon2id$nonsense',
      '$argon2id$v=19$m=64,t=1,t=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHApl8ArZWb2GRPPc',
      '$argon2id$v=18$m=64,t=1,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHApl8ArZWb2GRPPc',
      `$2b$31$${'a'.repeat(53)}`,
      `$2b$03$${'a'.repeat(53)}`,
      '$scrypt$ln=16,r=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA',
      '$fbscrypt$v=1,n=20,r=1,p=1,sk=c2lnbmVyc2lnbmVyc2lnbmVy$c2FsdA==$aGFzaGhhc2hoYXNoaGFzaA==',
    ]) {
      expect(isKnownPasswordHash(hash)).toBe(false)
      expect((await hasher.verify('x', hash)).isRight).toBe(false)
    }
  })

  const onLinux = it.runIf(process.platform === 'linux')
  onLinux('never rises above the priority that its process was started with', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'millrace-nice-'))
    const program = join(folder, 'program.mjs')
    const threads = pathToFileURL('api/auth/passwords/hash-threads.ts').href
    await writeFile(
      program,
      `import { readdirSync, readFileSync } from 'node:fs'
      const { createHashThreads } = await import(${JSON.stringify(threads)})
      await createHashThreads(1).hash('x', { memoryKib: 64, iterations: 1, parallelism: 1 })
      const nicenessOf = (thread) =>
        readFileSync('/proc/self/task/' + thread + '/stat', 'utf8').split(') ')[1].split(' ')[16]
      console.log(Math.min(...readdirSync('/proc/self/task').map(nicenessOf)))`,
    )
    try {
      const { stdout } = await run('nice', ['-n', '15', process.execPath, program])
      expect(Number(stdout)).toBeGreaterThanOrEqual(15)
    } finally {
      await rm(folder, { recursive: true })
    }
  })

  it('computes a limited number of hashes at once and queues a limited number', async () => {
    const hasher = createPasswordHasher(
      config({ MILLRACE_PASSWORD_HASH_CONCURRENCY: '1', MILLRACE_PASSWORD_HASH_QUEUE_MAX: '2' }),
      PATIENCE,
    )
    const results = await Promise.allSettled(
      Array.from({ length: 5 }, () => hasher.hash('correct horse')),
    )
    const refused = results.filter((result) => result.status === 'rejected')
    expect(refused).toHaveLength(2)
    expect(refused[0]?.reason).toMatchObject({ kind: 'overloaded', code: 'over_capacity' })
    expect(await hasher.hash('correct horse')).toMatch(/^\$argon2id/)
  })

  it('skips hashes whose request has ended', async () => {
    let nowMs = 0
    const clock = { ...systemClock, monotonic: () => nowMs }
    const hasher = createPasswordHasher(config({ MILLRACE_PASSWORD_HASH_CONCURRENCY: '1' }), {
      clock,
      waitMsMax: 10_000,
    })
    const [first, second, third] = [hasher.hash('one'), hasher.hash('two'), hasher.hash('three')]
    // Hashes in flight are finished; those still waiting are discarded.
    nowMs = 10_001
    expect(await first).toMatch(/^\$argon2id/)
    await expect(second).rejects.toMatchObject({ kind: 'overloaded', code: 'over_capacity' })
    await expect(third).rejects.toMatchObject({ kind: 'overloaded' })
    expect(hasher.load()).toEqual({ running: 0, waiting: 0 })
    expect(await hasher.hash('four')).toMatch(/^\$argon2id/)
  })
})

describe('password rules', () => {
  it('count characters, not code units', async () => {
    const log = createLogger({ level: 'silent' })
    await expect(checkPasswordRules('😀😀😀', { config: config(), log })).rejects.toMatchObject({
      reasons: ['length'],
    })
    await checkPasswordRules('😀😀😀😀😀😀', { config: config(), log })
  })
})
