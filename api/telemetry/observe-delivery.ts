import type { Histogram } from 'prom-client'

import type { PasswordHasher } from '#api/auth/passwords/password.ts'
import type { Mailer, SmsSender } from '#api/auth/ports.ts'
import { MAIL_KINDS } from '#shared/config/auth-mail.ts'
import { inChildSpan, type Tracing } from '#shared/telemetry/tracing.ts'

import type { ApiMetrics } from './metrics.ts'

const OUTCOMES = ['ok', 'failed'] as const

/** Measures and traces a mailer; email addresses are not recorded. */
export function observeMailer(
  mailer: Mailer,
  { mailDuration }: Pick<ApiMetrics, 'mailDuration'>,
  tracing: Tracing,
): Mailer {
  // A rate needs a series before its first event, so that the first failure is visible.
  for (const kind of MAIL_KINDS) {
    for (const outcome of OUTCOMES) mailDuration.zero({ kind, outcome })
  }
  const span = { name: 'mail send', kind: 'CLIENT' as const, attributes: {} }
  return {
    send: (mail) =>
      timed(mailDuration, { kind: mail.kind }, () =>
        inChildSpan(tracing, span, () => mailer.send(mail)),
      ),
  }
}

/** Measures and traces an SMS sender; phone numbers are not recorded. */
export function observeSms(
  sms: SmsSender,
  gateway: string,
  { metrics, tracing }: { metrics: Pick<ApiMetrics, 'smsDuration'>; tracing: Tracing },
): SmsSender {
  if (gateway !== 'none') {
    for (const outcome of OUTCOMES) metrics.smsDuration.zero({ gateway, outcome })
  }
  const span = { name: 'sms send', kind: 'CLIENT' as const, attributes: {} }
  return {
    send: (message) =>
      timed(metrics.smsDuration, { gateway }, () =>
        inChildSpan(tracing, span, () => sms.send(message)),
      ),
    ...(sms.isRightCode !== undefined && { isRightCode: sms.isRightCode }),
    requireGateway: (channel) => sms.requireGateway(channel),
    testOtp: (phone) => sms.testOtp(phone),
  }
}

/** Measures and traces a password hasher. */
export function observeHasher(
  hasher: PasswordHasher,
  { hashDuration }: Pick<ApiMetrics, 'hashDuration'>,
  tracing: Tracing,
): PasswordHasher {
  const observed = async <T>(operation: 'hash' | 'verify', work: () => Promise<T>): Promise<T> => {
    const stop = hashDuration.startTimer({ operation })
    const span = { name: `password ${operation}`, kind: 'INTERNAL' as const, attributes: {} }
    return inChildSpan(tracing, span, work).finally(() => stop())
  }
  return {
    hash: (password) => observed('hash', () => hasher.hash(password)),
    verify: (password, hash) => observed('verify', () => hasher.verify(password, hash)),
    load: () => hasher.load(),
  }
}

async function timed<L extends string, T>(
  histogram: Histogram<L | 'outcome'>,
  labels: Readonly<Record<L, string>>,
  work: () => Promise<T>,
): Promise<T> {
  const begunAtMs = performance.now()
  const observe = (outcome: string): void =>
    histogram.observe({ ...labels, outcome }, (performance.now() - begunAtMs) / 1000)
  try {
    const result = await work()
    observe('ok')
    return result
  } catch (error) {
    observe('failed')
    throw error
  }
}
