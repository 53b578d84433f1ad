import { setTimeout as sleep } from 'node:timers/promises'

const UNIT_MS = { minute: 60_000, day: 86_400_000 }
/** Longer than a test of a limit takes on a busy machine. */
const TEST_MS = 5000

/**
 * Waits for the next minute or day (UTC) if the present one could end during a test, whose exact
 * counts would then be those of two windows.
 */
export async function stayInOne(unit: keyof typeof UNIT_MS): Promise<void> {
  const leftMs = UNIT_MS[unit] - (Date.now() % UNIT_MS[unit])
  if (leftMs < TEST_MS) await sleep(leftMs + 10)
}
