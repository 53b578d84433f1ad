import { ListObjectsV2Command, type S3Client } from '@aws-sdk/client-s3'

import { ServiceError } from '#shared/errors.ts'

interface Answer {
  readonly name?: string
  readonly code?: string
  readonly message: string
  readonly $metadata?: { readonly httpStatusCode?: number }
}

const UNKNOWN_KEY = 'it does not know the access key: check S3_ACCESS_KEY_ID'

// Error codes of S3 and of connections, each of which points to one setting.
const SENTENCES: Readonly<Record<string, string>> = {
  NoSuchBucket: 'it has no such bucket: check S3_BUCKET',
  InvalidBucketName: 'its name of the bucket is invalid: check S3_BUCKET',
  InvalidAccessKeyId: UNKNOWN_KEY,
  // versitygw
  XAdminUserNotFound: UNKNOWN_KEY,
  SignatureDoesNotMatch: 'the secret does not fit the access key: check S3_SECRET_ACCESS_KEY',
  AccessDenied: 'the access key may not list the bucket: check its policy, and S3_BUCKET',
  AuthorizationHeaderMalformed: 'it is in another region: check S3_REGION',
  PermanentRedirect: 'the bucket is in another region: check S3_REGION and S3_ENDPOINT',
  EPROTO: 'it does not speak TLS: check S3_ENDPOINT, http or https',
  RequestTimeTooSkewed: 'the clock of this machine is wrong: synchronize it',
}

/** Whether an error code shows that a setting is wrong: no request works until it is corrected. */
export function isWrongSetting(code: string | undefined): boolean {
  return code !== undefined && Object.hasOwn(SENTENCES, code)
}

/** Explains why a bucket cannot be used, and names the setting to check. */
export async function explainBucketFault(
  client: S3Client,
  bucket: string,
  headFault: unknown,
): Promise<Error> {
  const head = answerOf(headFault)
  // Answers to HEAD have no body and thus no code; a list request needs the same permission.
  const isAnswer = head.$metadata?.httpStatusCode !== undefined
  const fault = isAnswer ? await listFault(client, bucket, head) : head
  const { message, $metadata } = fault
  const status = $metadata?.httpStatusCode
  const sentence = SENTENCES[fault.code ?? ''] ?? SENTENCES[fault.name ?? '']
  if (sentence !== undefined) return new Error(sentence)
  const [line = ''] = message.split('\n', 1)
  const reason = line === '' ? 'it does not answer' : line
  // Other servers have further error codes.
  const settings =
    status === undefined
      ? ': check S3_ENDPOINT'
      : ` (status ${status}): check S3_ENDPOINT, S3_BUCKET and the keys`
  return new Error(`${reason}${settings}`)
}

async function listFault(client: S3Client, bucket: string, head: Answer): Promise<Answer> {
  try {
    await client.send(new ListObjectsV2Command({ Bucket: bucket, MaxKeys: 1 }))
    return head
  } catch (error) {
    return answerOf(error)
  }
}

function answerOf(error: unknown): Answer {
  return (error instanceof ServiceError ? error.cause : error) as Answer
}
