import { constants } from 'node:fs'
import { open } from 'node:fs/promises'

/**
 * The bytes of a regular file, at most `bytesMax`. Throws for a larger file, and for pipes, devices
 * and folders, whose size is meaningless.
 */
export async function readFileWithin(path: string, bytesMax: number): Promise<Buffer> {
  // Without this flag opening a pipe waits for its writer.
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK)
  try {
    const stats = await file.stat()
    if (!stats.isFile()) throw new Error(`${path} is not a regular file`)
    if (stats.size > bytesMax) {
      throw new Error(`${path}: ${stats.size} bytes are more than the ${bytesMax} that are read`)
    }
    const bytes = Buffer.allocUnsafe(stats.size)
    let length = 0
    while (length < bytes.length) {
      const { bytesRead } = await file.read(bytes, length, bytes.length - length, length)
      if (bytesRead === 0) break
      length += bytesRead
    }
    return bytes.subarray(0, length)
  } finally {
    await file.close()
  }
}
