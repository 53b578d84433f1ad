/** Settles like the work, or rejects with `late()` when the work takes longer than `limitMs`. */
export async function withinTime<T>(
  work: Promise<T>,
  limitMs: number,
  late: () => Error,
): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const timeout = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(late()), limitMs)
  })
  try {
    return await Promise.race([work, timeout])
  } finally {
    clearTimeout(timer)
  }
}
