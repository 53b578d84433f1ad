import { createHash } from 'node:crypto'

import { invalid, WeakPasswordError, type WeakPasswordReason } from '#api/auth/errors.ts'
import type { PasswordConfig } from '#shared/config/auth-policies.ts'
import { ServiceError } from '#shared/errors.ts'
import type { Logger } from '#shared/logger.ts'
import { createGuardedFetch } from '#shared/net/guarded-fetch.ts'

const PASSWORD_BYTES_MAX = 72
const BREACH_CHECK_TIMEOUT_MS = 5000
const BREACH_ANSWER_BYTES_MAX = 1024 * 1024

/** Throws unless the password follows every rule; the message lists all broken ones. */
export async function checkPasswordRules(
  password: string,
  options: { readonly config: PasswordConfig; readonly log: Logger },
): Promise<void> {
  const { config, log } = options
  if (Buffer.byteLength(password) > PASSWORD_BYTES_MAX) {
    throw invalid(`Password cannot be longer than ${PASSWORD_BYTES_MAX} characters`, 'password')
  }
  const messages: string[] = []
  const reasons: WeakPasswordReason[] = []
  if ([...password].length < config.lengthMin) {
    messages.push(`Password should be at least ${config.lengthMin} characters.`)
    reasons.push('length')
  }
  const sets = config.requiredCharacters
  if (!sets.every((set) => [...set].some((character) => password.includes(character)))) {
    messages.push(`Password should contain at least one character of each: ${sets.join(', ')}.`)
    reasons.push('characters')
  }
  if (
    reasons.length === 0 &&
    config.breachCheck.isEnabled &&
    (await isBreached(password, config, log))
  ) {
    messages.push('Password is known to be weak and easy to guess, please choose a different one.')
    reasons.push('pwned')
  }
  if (reasons.length > 0) throw new WeakPasswordError(messages.join(' '), reasons)
}

// Only the first five digits of the hash leave this machine.
async function isBreached(password: string, config: PasswordConfig, log: Logger): Promise<boolean> {
  const digest = createHash('sha1').update(password).digest('hex').toUpperCase()
  // The operator sets this URL.
  const fetch = createGuardedFetch({
    timeoutMs: BREACH_CHECK_TIMEOUT_MS,
    bodyBytesMax: BREACH_ANSWER_BYTES_MAX,
    allowsPrivateAddresses: true,
  })
  try {
    const { status, text } = await fetch({
      url: `${config.breachCheck.url}/range/${digest.slice(0, 5)}`,
      headers: { accept: 'text/plain', 'add-padding': 'true' },
    })
    if (status !== 200) throw new Error(`the breach service answered ${status}`)
    return text.split('\n').some((line) => {
      const [suffix, count] = line.trim().split(':')
      return suffix === digest.slice(5) && Number(count) > 0
    })
  } catch (error) {
    log.warn({ error: (error as Error).message }, 'breach check failed')
    if (!config.breachCheck.isFailClosed) return false
    const message = 'Passwords cannot be checked for breaches at the moment, please try again later'
    throw new ServiceError('overloaded', message, { code: 'unexpected_failure', cause: error })
  }
}
