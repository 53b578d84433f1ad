/**
 * Does all tasks at once. The first failure aborts the others' signal and is thrown once all of them
 * have ended, so that nothing of a job outlives it.
 */
export async function allOrNone<Value>(
  signal: AbortSignal,
  tasks: readonly ((signal: AbortSignal) => Promise<Value>)[],
): Promise<Value[]> {
  const failed = new AbortController()
  const either = AbortSignal.any([signal, failed.signal])
  const running = tasks.map((task) => task(either))
  try {
    return await Promise.all(running)
  } catch (error) {
    failed.abort()
    await Promise.allSettled(running)
    throw error
  }
}
