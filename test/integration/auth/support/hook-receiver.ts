import { createHmac } from 'node:crypto'

import { type PeerReply, type PeerRequest, startHttpPeer } from '#test/support/http-peers.ts'

/** A call that a receiver got. */
export interface HookCall {
  readonly hook: string
  // biome-ignore lint/suspicious/noExplicitAny: tests read payloads of any shape.
  readonly payload: any
  readonly request: PeerRequest
}

/** A receiver of hooks on a port of its own. */
export interface HookReceiver {
  readonly url: string
  readonly calls: HookCall[]
  /** Answers of the hooks by their names; `{}` for all others. */
  readonly answers: Map<string, (call: HookCall) => PeerReply>
  /** The payloads of one hook, oldest first. */
  payloads(hook: string): HookCall['payload'][]
  /** The settings that enable hooks of this receiver. */
  settings(...hooks: readonly string[]): Record<string, string>
  stop(): Promise<void>
}

export const HOOK_SECRET = Buffer.alloc(32, 7)
const SECRET_TEXT = `v1,whsec_${HOOK_SECRET.toString('base64')}`

/** Starts a receiver; the hook `SEND_SMS` is called at `/SEND_SMS`. */
export async function startHookReceiver(): Promise<HookReceiver> {
  const calls: HookCall[] = []
  const answers: HookReceiver['answers'] = new Map()
  const peer = await startHttpPeer((request) => {
    const hook = request.path.slice(1)
    const call = { hook, payload: JSON.parse(request.text), request }
    calls.push(call)
    return answers.get(hook)?.(call) ?? { body: {} }
  })
  return {
    url: peer.url,
    calls,
    answers,
    payloads: (hook) => calls.flatMap((call) => (call.hook === hook ? [call.payload] : [])),
    settings: (...hooks) =>
      Object.fromEntries(
        hooks.flatMap((hook) => [
          [`AUTH_HOOK_${hook}_ENABLED`, 'true'],
          [`AUTH_HOOK_${hook}_URI`, `${peer.url}/${hook}`],
          [`AUTH_HOOK_${hook}_SECRETS`, SECRET_TEXT],
        ]),
      ),
    stop: () => peer.stop(),
  }
}

/**
 * Whether one of the signatures of a call is made with the secret, as Standard Webhooks has them.
 */
export function isSignedWith(secret: Buffer, { headers, text }: PeerRequest): boolean {
  const signed = `${headers['webhook-id']}.${headers['webhook-timestamp']}.${text}`
  const mac = createHmac('sha256', secret).update(signed).digest('base64')
  return String(headers['webhook-signature']).split(' ').includes(`v1,${mac}`)
}
