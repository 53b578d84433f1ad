import { once } from 'node:events'
import { createServer } from 'node:net'

/**
 * Keeps other launchers from choosing the same port between the check that it is free and the start
 * of its server. Resolves with a function that releases it, or with undefined when another launcher
 * holds it. The lock is an abstract socket name in the kernel: it ends with this process, and is
 * visible in the same network namespace as the port. Where the system has no such names, there is
 * no lock.
 */
export async function claimPortNumber(port: number): Promise<(() => Promise<void>) | undefined> {
  const claim = createServer((peer) => peer.destroy())
  try {
    claim.listen(`\0millrace-port-${port}`)
    await once(claim, 'listening')
  } catch (error) {
    const isTaken = (error as NodeJS.ErrnoException).code === 'EADDRINUSE'
    return isTaken ? undefined : async () => {}
  }
  claim.unref()
  return async () => {
    await new Promise((resolve) => claim.close(resolve))
  }
}
