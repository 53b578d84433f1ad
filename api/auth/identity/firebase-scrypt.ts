import { createCipheriv, scrypt, timingSafeEqual } from 'node:crypto'

/**
 * Firebase's variant of scrypt: the derived key encrypts the project's signer key.
 * `$fbscrypt$v=1,n=14,r=8,p=1,ss=<salt separator>,sk=<signer key>$<salt>$<hash>`, all base64.
 */
export async function verifyFirebaseScrypt(password: string, hash: string): Promise<boolean> {
  const parts = FORMAT.exec(hash)
  if (!parts) return false
  const [, n, r, p, separator = '', signerKey = '', salt = '', expected = ''] = parts
  const [memoryExponent, rounds] = [Number(n), Number(r)]
  if (memoryExponent < 1 || memoryExponent > MEMORY_EXPONENT_MAX || rounds > ROUNDS_MAX)
    return false
  const fullSalt = Buffer.concat([Buffer.from(salt, 'base64'), Buffer.from(separator, 'base64')])
  const options = {
    N: 2 ** memoryExponent,
    r: rounds,
    p: Number(p),
    maxmem: 256 * 1024 * 1024,
  }
  const key = await new Promise<Buffer>((resolve, reject) => {
    scrypt(password, fullSalt, 32, options, (error, derived) =>
      error ? reject(error) : resolve(derived),
    )
  })
  // Firebase counts from a zero block.
  const cipher = createCipheriv('aes-256-ctr', key, Buffer.alloc(16))
  const actual = Buffer.concat([cipher.update(Buffer.from(signerKey, 'base64')), cipher.final()])
  const wanted = Buffer.from(expected, 'base64')
  return actual.length === wanted.length && timingSafeEqual(actual, wanted)
}

const FORMAT =
  /^\$fbscrypt\$v=1,n=(\d{1,2}),r=(\d{1,2}),p=(\d{1,2})(?:,ss=([^,$]*))?,sk=([^,$]+)\$([^$]+)\$([^$]+)$/
const MEMORY_EXPONENT_MAX = 17
const ROUNDS_MAX = 16
