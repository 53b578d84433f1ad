import { createWriteStream, type WriteStream } from 'node:fs'

const REOPEN_DELAY_MS = 1000

/** The log file of a child process; only its owner can read it. */
interface ChildLog {
  write(chunk: Buffer): void
  end(): void
}

/**
 * Opens a log for appending. Output that cannot be written, as on a full disk, is dropped; writing
 * is retried after a second.
 */
export function openChildLog(file: string): ChildLog {
  let stream: WriteStream | undefined = open()
  let brokenAtMs = 0

  function open(): WriteStream {
    const opened = createWriteStream(file, { flags: 'a', mode: 0o600 })
    opened.once('error', () => {
      stream = undefined
      brokenAtMs = performance.now()
    })
    return opened
  }

  return {
    write(chunk) {
      if (stream === undefined && performance.now() - brokenAtMs > REOPEN_DELAY_MS) stream = open()
      stream?.write(chunk)
    },
    end() {
      stream?.end()
    },
  }
}
