import type { PullProgress } from '#workers/models/hub-cache.ts'

/** A progress bar on a terminal; elsewhere one line at the end. */
export function showProgress({ file, doneBytes, totalBytes }: PullProgress): void {
  const share = totalBytes === 0 ? 1 : doneBytes / totalBytes
  if (!process.stderr.isTTY) {
    if (share === 1) console.error(`${totalBytes} bytes are there`)
    return
  }
  const bar = '█'.repeat(Math.round(share * 30)).padEnd(30, '░')
  process.stderr.write(
    `\r${bar} ${Math.floor(share * 100)} % ${file}\u001b[K${share === 1 ? '\n' : ''}`,
  )
}

/** The same; outside a terminal, a line for each tenth of the bytes. */
export function makeProgress(): (progress: PullProgress) => void {
  let shown = 0
  return (progress) => {
    if (process.stderr.isTTY) {
      showProgress(progress)
      return
    }
    const tenths = Math.floor((10 * progress.doneBytes) / progress.totalBytes)
    if (tenths > shown) console.error(`${10 * tenths} % ${progress.file}`)
    shown = tenths
  }
}
