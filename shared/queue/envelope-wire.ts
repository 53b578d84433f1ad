import type { JobEnvelope } from '../contracts/job.ts'
import { type ContentCipher, readContent } from './content-cipher.ts'

/**
 * The version of an envelope with an encrypted input. Workers of releases that cannot decrypt refuse
 * it, and the owner submits the job again; upgrade workers first.
 */
export const ENCRYPTED_ENVELOPE_VERSION = 2

/** An envelope as it lies in the queue: `input` is base64 of the encrypted JSON, BullMQ stores text. */
type WireEnvelope =
  | JobEnvelope
  | (Omit<JobEnvelope, 'version' | 'input'> & {
      readonly version: typeof ENCRYPTED_ENVELOPE_VERSION
      readonly input: string
    })

/** Encrypts the input of an envelope; without a cipher it stays as it is. */
export function encryptEnvelope(
  envelope: JobEnvelope,
  cipher: ContentCipher | undefined,
): WireEnvelope {
  if (cipher === undefined) return envelope
  const message = cipher.encrypt(JSON.stringify(envelope.input), contextOf(envelope))
  return {
    ...envelope,
    version: ENCRYPTED_ENVELOPE_VERSION,
    input: message.toString('base64'),
  }
}

/** The input of an encrypted envelope. Throws when this process lacks the key. */
export function decryptInput(
  { jobId, input }: { readonly jobId: string; readonly input: string },
  cipher: ContentCipher | undefined,
): unknown {
  const message = Buffer.from(input, 'base64')
  return JSON.parse(readContent(message, cipher, contextOf({ jobId })).toString('utf8'))
}

function contextOf({ jobId }: { readonly jobId: string }): string {
  return `input of ${jobId}`
}
