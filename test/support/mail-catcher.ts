import PostalMime, { type Email } from 'postal-mime'
import { SMTPServer } from 'smtp-server'

/** A real SMTP server for tests. */
export interface MailCatcher {
  readonly host: string
  readonly port: number
  readonly received: readonly Email[]
  /** The next mail to an address without an earlier wait. */
  waitFor(address: string): Promise<Email>
  /** Refuses every mail from now on, or accepts them again. */
  refuseAll(isRefusing: boolean): void
  stop(): Promise<void>
}

const WAIT_TIMEOUT_MS = 30_000

/** Starts a mail server on a free port of the loopback interface. */
export async function startMailCatcher(): Promise<MailCatcher> {
  const received: Email[] = []
  const taken = new Set<Email>()
  const listeners = new Set<() => void>()
  let isRefusing = false
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS'],
    onMailFrom: (_address, _session, done) =>
      done(isRefusing ? Object.assign(new Error('not now'), { responseCode: 451 }) : null),
    onData(stream, _session, done) {
      const chunks: Buffer[] = []
      stream.on('data', (chunk: Buffer) => chunks.push(chunk))
      stream.on('end', () => {
        void PostalMime.parse(Buffer.concat(chunks)).then((mail) => {
          received.push(mail)
          for (const listener of listeners) listener()
          done()
        })
      })
    },
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.server.address() as { port: number }
  const take = (address: string) => {
    const mail = received.find(
      (candidate) => !taken.has(candidate) && candidate.to?.some((to) => to.address === address),
    )
    if (mail !== undefined) taken.add(mail)
    return mail
  }
  return {
    host: '127.0.0.1',
    port,
    received,
    waitFor: (address) => waitForMail(() => take(address), listeners, address),
    refuseAll(next) {
      isRefusing = next
    },
    stop: () => new Promise((resolve) => server.close(() => resolve())),
  }
}

function waitForMail(
  take: () => Email | undefined,
  listeners: Set<() => void>,
  address: string,
): Promise<Email> {
  return new Promise((resolve, reject) => {
    const finish = (act: () => void) => {
      clearTimeout(timer)
      listeners.delete(look)
      act()
    }
    const timer = setTimeout(
      () => finish(() => reject(new Error(`no mail to ${address} within ${WAIT_TIMEOUT_MS} ms`))),
      WAIT_TIMEOUT_MS,
    )
    const look = () => {
      const mail = take()
      if (mail !== undefined) finish(() => resolve(mail))
    }
    listeners.add(look)
    look()
  })
}
