import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'

import type { Redis } from 'ioredis'

/** Everything that a Redis holds, of every type and with its keys, as bytes. */
export async function dumpRedis(redis: Redis): Promise<Buffer> {
  const parts: Buffer[] = []
  let cursor = '0'
  do {
    const [next, keys] = await redis.scan(cursor, 'COUNT', '1000')
    cursor = next
    for (const key of keys) parts.push(Buffer.from(`\n${key}\n`), ...(await contentOf(redis, key)))
  } while (cursor !== '0')
  return Buffer.concat(parts)
}

async function contentOf(redis: Redis, key: string): Promise<Buffer[]> {
  switch (await redis.type(key)) {
    case 'string':
      return [(await redis.getBuffer(key)) ?? Buffer.alloc(0)]
    case 'hash':
      return Object.entries(await redis.hgetallBuffer(key)).flatMap(([field, value]) => [
        Buffer.from(`\n${field} `),
        value,
      ])
    case 'list':
      return redis.lrangeBuffer(key, 0, -1)
    case 'set':
      return redis.smembersBuffer(key)
    case 'zset':
      return redis.zrangeBuffer(key, '0', '-1')
    case 'stream':
      return (await redis.xrangeBuffer(key, '-', '+')).flatMap(([, fields]) => fields)
    default:
      // The key expired meanwhile.
      return []
  }
}

/** The append-only files below the folder of a Redis, as bytes. */
export async function readAppendOnlyFiles(folder: string): Promise<Buffer> {
  const names = await readdir(folder, { recursive: true })
  const files = names.filter((name) => name.endsWith('.aof') || name.endsWith('.rdb'))
  return Buffer.concat(await Promise.all(files.map((name) => readFile(join(folder, name)))))
}
