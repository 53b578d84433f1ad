import type { OutboxMessage } from '#api/auth/delivery/outbox.ts'
import type { Mail } from '#api/auth/ports.ts'
import type { Store } from '#api/auth/store.ts'
import { presentUser } from '#api/auth/users/present-user.ts'
import { findUserById, loadParts } from '#api/auth/users/user-store.ts'
import type { HookName } from '#shared/config/auth-hooks.ts'
import type { MailKind } from '#shared/config/auth-mail.ts'
import type { OutboxMessageRow } from '#shared/db/schema/auth.ts'

import type { AuthHooks } from './hooks.ts'

const HOOK_BY_CHANNEL = {
  email: 'sendEmail',
  sms: 'sendSms',
  newUser: 'afterUserCreated',
} as const satisfies Partial<Record<OutboxMessage['channel'], HookName>>

/**
 * Delivers a message of the outbox through its hook; false when the mailer or gateway must send it.
 */
export async function deliverByHook(
  { hooks, store }: { readonly hooks: AuthHooks; readonly store: Store },
  row: OutboxMessageRow,
  message: OutboxMessage,
): Promise<boolean> {
  if (message.channel === 'none') return false
  const name = HOOK_BY_CHANNEL[message.channel]
  // Announcements to a hook that has since been disabled are dropped.
  if (!hooks.isEnabled(name)) return message.channel === 'newUser'
  const user = row.userId === null ? undefined : await findUserById(store, row.userId)
  // The user was deleted in between.
  if (user === undefined) return true
  const presented = presentUser(await loadParts(store, user))
  // A repeated delivery has the same id, so that receivers recognize it.
  await hooks.invoke(name, payloadOf(row, message, presented), row.id)
  return true
}

function payloadOf(
  row: OutboxMessageRow,
  message: OutboxMessage,
  user: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  switch (message.channel) {
    case 'email': {
      const { mail } = message
      // Metadata that an unconfirmed user receives with the token is not in the row yet.
      return { user: { ...user, user_metadata: mail.variables.data }, email_data: emailData(mail) }
    }
    case 'sms': {
      const { otp, to: phone, type } = message.sms
      return { user, sms: { otp, ...(type !== undefined && { sms_type: type }), phone } }
    }
    case 'newUser': {
      const time = row.createdAt.toISOString()
      const call = { uuid: row.id, time, name: 'after-user-created', ip_address: message.ip }
      return { metadata: call, user }
    }
    case 'none':
      throw new Error('a message without a recipient has no hook')
  }
}

const LINK_TYPES: Readonly<Record<MailKind, string>> = {
  invite: 'invite',
  confirmation: 'signup',
  recovery: 'recovery',
  magicLink: 'magiclink',
  emailChange: 'email_change',
  reauthentication: 'reauthentication',
}

/**
 * The tokens of a mail. For a change of address that both sides confirm, receivers expect swapped
 * hashes: `token_hash` belongs to the new address and `token_new`, `token_hash_new` to the current
 * one and `token`.
 */
function emailData({ kind, variables, forHook }: Mail): Readonly<Record<string, string>> {
  const { token, tokenHash, redirectTo: redirect_to, siteUrl } = variables
  const current = forHook?.currentToken
  return {
    token: current?.code ?? token,
    token_hash: tokenHash,
    redirect_to,
    email_action_type: forHook?.linkType ?? LINK_TYPES[kind],
    site_url: forHook?.externalUrl ?? siteUrl,
    token_new: current === undefined ? '' : token,
    token_hash_new: current?.linkToken ?? '',
  }
}
