import { once } from 'node:events'
import { createServer } from 'node:net'

/**
 * Keeps other launchers from choosing the same number between the look whether a port is free and
 * the start of what listens there. Resolves with what gives it back, or with undefined when another
 * has it. It is a name in the kernel that goes with this process, however that ends, and is seen
 * where the port is seen; where the system has no such names, nobody is kept away.
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
