import { createCipheriv, scrypt, timingSafeEqual } from 'node:crypto'

/**
 * Firebase's variant of scrypt: the derived key encrypts the project's signer key.
 * `$fbscrypt$v=1,n=14,r=8,p=1,ss=<salt separator>,sk=<signer key>$<salt>$<hash>`, all base64.
 */
export async function verifyFirebaseScrypt(password: string, hash: string): Promise<boolean> {
  const parts = FIREBASE_FORMAT.exec(hash)
  if (!parts) return false
  const [, n, r, p, separator = '', signerKey = '', salt = '', expected = ''] = parts
  const fullSalt = Buffer.concat([Buffer.from(salt, 'base64'), Buffer.from(separator, 'base64')])
  const options = {
    N: 2 ** Number(n),
    r: Number(r),
    p: Number(p),
    maxmem: 512 * 1024 * 1024,
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

/** What such a hash looks like. */
export const FIREBASE_FORMAT =
  /^\$fbscrypt\$v=1,n=(\d{1,2}),r=(\d{1,2}),p=(\d{1,2})(?:,ss=([^,$]*))?,sk=([^,$]+)\$([^$]+)\$([^$]+)$/
